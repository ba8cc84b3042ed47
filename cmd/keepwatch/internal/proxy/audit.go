package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/server/proxy"
)

// shownAuditFlags are in the help: kube-apiserver has 25 more, which tune them.
var shownAuditFlags = []string{
	"audit-policy-file", "audit-log-path", "audit-log-maxage", "audit-log-maxbackup", "audit-log-maxsize",
	"audit-webhook-config-file",
}

// auditFlags are kube-apiserver's flags of the audit log.
type auditFlags struct{ *options.AuditOptions }

func newAuditFlags() auditFlags { return auditFlags{options.NewAuditOptions()} }

func (a auditFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	a.AddFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, "audit-") {
			f.Hidden = !slices.Contains(shownAuditFlags, f.Name)
		}
	})
	flags.Lookup(
		"audit-policy-file").Usage = "record the reads that are answered from memory by this policy (audit.k8s.io/v1), " +
		"in --audit-log-path or --audit-webhook-config-file; at the level RequestResponse without the objects. " +
		"The server's audit log has the other requests. All --audit flags of kube-apiserver are accepted"
	flags.Lookup(
		"audit-log-path").Usage = "write the audit log of --audit-policy-file to this file; - means standard output"
	exit.NotEmpty(flags, "audit-policy-file", "audit-log-path", "audit-webhook-config-file")
}

// check returns an error for flags that contradict each other.
func (a auditFlags) check() error {
	logged := a.LogOptions.Path != "" || a.WebhookOptions.ConfigFile != ""
	switch {
	case logged && a.PolicyFile == "":
		return errors.New(
			"--audit-log-path and --audit-webhook-config-file record nothing without a policy: give one with --audit-policy-file")
	case !logged && a.PolicyFile != "":
		return errors.New(
			"--audit-policy-file has no effect alone: give --audit-log-path or --audit-webhook-config-file, too")
	}
	return errors.Join(a.Validate()...)
}

// start returns the running audit log, nil if there is none, and a function that ends it when no request is open any
// more.
func (a auditFlags) start() (log *proxy.Audit, end func(), err error) {
	if a.PolicyFile == "" {
		return nil, func() {}, nil
	}
	var config genericserver.Config
	if err := a.ApplyTo(&config); err != nil {
		return nil, nil, fmt.Errorf("the audit log: %w", err)
	}
	ended := make(chan struct{})
	if err := config.AuditBackend.Run(ended); err != nil {
		return nil, nil, fmt.Errorf("the audit log: %w", err)
	}
	return &proxy.Audit{Backend: config.AuditBackend, Policy: config.AuditPolicyRuleEvaluator}, func() {
		close(ended)
		config.AuditBackend.Shutdown()
	}, nil
}
