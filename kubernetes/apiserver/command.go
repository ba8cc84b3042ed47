package apiserver

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// NewCommand returns the command keepwatch-apiserver. It handles SIGTERM and SIGINT, so a process
// calls it once.
func NewCommand() *cobra.Command {
	s := options.NewServerRunOptions()
	ours := NewOptions()
	ctx := genericapiserver.SetupSignalContext()
	components := s.GenericServerRunOptions.ComponentGlobalsRegistry
	gates := components.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	cmd := &cobra.Command{
		Use: "keepwatch-apiserver",
		Long: `The Kubernetes API server with Keepwatch's reads: it has kube-apiserver's flags, and stores what
kube-apiserver stores. It answers GET, LIST and WATCH from memory, encodes an object once, and after a
restart continues the watches of its clients without a list.`,
		SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			rest.SetDefaultWarningHandler(rest.NoWarnings{}) // the loopback clients' own
			return components.Set()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := logsapi.ValidateAndApply(s.Logs, gates); err != nil {
				return err
			}
			cliflag.PrintFlags(cmd.Flags())
			completed, err := s.Complete(ctx)
			if err != nil {
				return err
			}
			if errs := append(completed.Validate(), ours.Validate()...); len(errs) != 0 {
				return utilerrors.NewAggregate(errs)
			}
			gates.(featuregate.MutableFeatureGate).AddMetrics()
			components.AddMetrics()
			return run(ctx, completed, *ours)
		},
		Args: func(cmd *cobra.Command, args []string) error {
			if slices.ContainsFunc(args, func(a string) bool { return a != "" }) {
				return fmt.Errorf("%q does not take any arguments, got %q", cmd.CommandPath(), args)
			}
			return nil
		},
	}
	cmd.SetContext(ctx)
	sets := s.Flags()
	ours.AddFlags(sets.FlagSet("keepwatch"))
	s.Flagz = flagz.NamedFlagSetsReader{FlagSets: sets}
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sets, columns)
	return cmd
}
