package judges

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/server/judge/audit"
	"github.com/keepwatch/keepwatch/sinks/statedir"
)

const auditHelp = `Compare resources on two servers at one revision: which objects are missing, extra or different.

The server is that of --kubeconfig and the other connection flags. --against is the kubeconfig of another
server of the same cluster, such as a proxy, a replica or another version, or the folder of a stream's
--state. An object that --against lacks is missing; one that only --against has is extra. Objects are
different if any field differs, and the paths of these fields are printed, without their values.

Each resource is read at exactly the newest revision of the server, in pages, from both. If that
revision expires meanwhile, the comparison starts again. Two clusters do not share revisions: with
--contents each is read at its own newest revision, and resourceVersion, uid, managedFields,
creationTimestamp and generation are not compared.

A state is compared at its cursor. It has only metadata, and no stream may have it open.

Exit codes, as diff's: 0 everything is equal, 1 something differs, 2 something could not be compared
(also wrong usage), 130 interrupted.`

const auditExample = `  # Is a new API server on the same etcd equal to the old one?
  keepwatch audit pods,services,deployments.apps -A --kubeconfig old.kubeconfig --against new.kubeconfig

  # Has a stream lost a deletion?
  keepwatch audit widgets -A --against ./widgets.state

  # Does a restored cluster have what the old one has?
  keepwatch audit configmaps,secrets -n shop --kubeconfig old.kubeconfig --against restored.kubeconfig --contents`

// codeNotCompared is the exit code of a comparison that failed, as diff's.
const codeNotCompared = 2

// auditOptions are the flags of audit.
type auditOptions struct {
	cluster.Flags
	against  string
	contents bool
	output   string
}

// NewAuditCommand returns `keepwatch audit`.
func NewAuditCommand() *cobra.Command {
	o := &auditOptions{Flags: cluster.NewFlags()}
	cmd := &cobra.Command{
		Use:                   "audit TYPE[.VERSION][.GROUP][,TYPE...] [NAME] --against KUBECONFIG|STATE [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Compare two servers, or a server and a stream's state, at one revision",
		Long:                  auditHelp,
		Example:               auditExample,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	flags := cmd.Flags()
	o.AddTo(flags)
	flags.StringVar(&o.against, "against", "", "the kubeconfig of the other server, or the folder of a stream's state")
	flags.BoolVar(&o.contents, "contents", false,
		"compare servers of different clusters, by the contents of their objects only")
	flags.StringVarP(&o.output, "output", "o", "table", "the report's format: table or json")
	flags.Lookup(
		"request-timeout").Usage = "The length of time to wait for discovery and for one page of a list (for example 30s). Zero means no limit."
	return cmd
}

// auditRequest is what the arguments and flags request.
type auditRequest struct {
	types     []cluster.TypeAndName
	selection cluster.Selection
	state     bool // whether --against is a folder
	print     func(io.Writer, []audit.Result) error
}

// parse returns an error for wrong usage.
func (o *auditOptions) parse(args []string) (r auditRequest, err error) {
	if r.types, err = parseTypes(args); err != nil {
		return r, err
	}
	if err := o.Check(); err != nil {
		return r, err
	}
	if r.selection, err = o.Flags.Selection(r.types[0].Name); err != nil {
		return r, err
	}
	switch o.output {
	case "table":
		r.print = audit.PrintTable
	case "json":
		r.print = audit.PrintJSON
	default:
		return r, fmt.Errorf("--output %q: give table or json", o.output)
	}
	if o.against == "" {
		return r, errors.New("give --against: the kubeconfig of the other server, or the folder of a stream's state")
	}
	info, err := os.Stat(o.against)
	if err != nil {
		return r, fmt.Errorf("--against: %w", err)
	}
	switch r.state = info.IsDir(); {
	case r.state && o.contents:
		return r, errors.New("--contents compares two servers: a state has no contents, only metadata")
	}
	return r, nil
}

// parseTypes parses TYPE, TYPE NAME and TYPE/NAME, with several types that are separated by commas.
func parseTypes(args []string) ([]cluster.TypeAndName, error) {
	if len(args) == 0 {
		_, err := cluster.ParseTypeAndName(nil)
		return nil, err
	}
	var all []cluster.TypeAndName
	for kind := range strings.SplitSeq(args[0], ",") {
		one, err := cluster.ParseTypeAndName(append([]string{kind}, args[1:]...))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
		if one.Name != all[0].Name {
			return nil, fmt.Errorf("all types have the same name, or none: give TYPE,TYPE NAME, not %q", strings.Join(args, " "))
		}
	}
	return all, nil
}

func (o *auditOptions) run(cmd *cobra.Command, args []string) error {
	request, err := o.parse(args)
	if err != nil {
		return exit.Usage(err)
	}
	klog.SetLogger(klog.Logger{}) // drops all logs of the libraries: their errors are returned
	err = cluster.Leave(cmd.Context(), func() error { return o.compareAll(cmd, request) })
	if errors.As(err, new(cluster.Left)) {
		return &exit.Error{Code: exit.CodeInterrupted}
	}
	return err
}

// compareAll compares the resources, and prints the report.
func (o *auditOptions) compareAll(cmd *cobra.Command, request auditRequest) error {
	ctx := cmd.Context()
	results := make([]audit.Result, 0, len(request.types))
	for _, one := range request.types {
		result := audit.Result{Resource: one.Kind}
		result.Report, result.Err = o.compare(ctx, request, one, &result.Resource)
		if ctx.Err() != nil {
			return &exit.Error{Code: exit.CodeInterrupted}
		}
		if result.Err != nil {
			text := fmt.Sprintf("%s not compared: %v", result.Resource, result.Err)
			fmt.Fprintln(cmd.ErrOrStderr(), "keepwatch:", messages.Line(text))
		}
		results = append(results, result)
	}
	if err := request.print(cmd.OutOrStdout(), results); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "keepwatch: %v\n", exit.WriteError(err))
		return &exit.Error{Code: codeNotCompared}
	}
	return verdictOf(results)
}

// verdictOf returns the error with the exit code for results.
func verdictOf(results []audit.Result) error {
	code := 0
	for _, one := range results {
		switch {
		case one.Err != nil || !one.Report.Complete():
			code = codeNotCompared
		case one.Report.Differs():
			code = max(code, exit.CodeError)
		}
	}
	if code == 0 {
		return nil
	}
	return &exit.Error{Code: code}
}

// compare compares one resource, and sets its full name when it is known.
func (o *auditOptions) compare(ctx context.Context, r auditRequest, one cluster.TypeAndName,
	name *string) (*audit.Report, error) {
	t, err := o.Resolve(ctx, once, one, r.selection, "list")
	if err != nil {
		return nil, err
	}
	*name = t.Name()
	options := audit.Options{
		Resource: t.Resource, Namespace: t.Namespace, LabelSelector: t.Labels, FieldSelector: t.Fields,
		PageSize: o.PageSize(), ContentsOnly: o.contents,
	}
	report, err := o.compareStates(ctx, t, r.state, options)
	if err == nil && one.Name != "" && report.Server.Objects+report.Against.Objects == 0 && report.Complete() {
		return nil, fmt.Errorf("neither side has %s", one.Name)
	}
	return report, err
}

// compareStates compares with a stream's state, or with another server.
func (o *auditOptions) compareStates(ctx context.Context, t *cluster.Target, state bool,
	options audit.Options) (*audit.Report, error) {
	if state {
		return o.compareState(ctx, t, options)
	}
	against, err := o.againstConfig()
	if err != nil {
		return nil, fmt.Errorf("--against: %w", err)
	}
	report, err := audit.Servers(ctx, t.Config, against, options)
	if errors.Is(err, audit.ErrDifferentClusters) {
		err = fmt.Errorf("%w: --contents compares those", err)
	}
	return report, err
}

// once sends a request once: a comparison does not wait for a server that does not run.
func once(ctx context.Context, request func(context.Context) error) error { return request(ctx) }

func (o *auditOptions) compareState(ctx context.Context, t *cluster.Target,
	options audit.Options) (*audit.Report, error) {
	id, err := t.Identity(ctx, once)
	if err != nil {
		return nil, err
	}
	index, err := statedir.OpenIndex(o.against, id)
	if err != nil {
		return nil, err
	}
	report, err := audit.State(ctx, t.Config, index, options)
	return report, errors.Join(err, index.Close())
}

// againstConfig returns the configuration of the connection to the other server.
func (o *auditOptions) againstConfig() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.against)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = cluster.ClientName()
	cfg.Timeout, err = clientcmd.ParseTimeout(*o.Config.Timeout)
	return cfg, err
}
