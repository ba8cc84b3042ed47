package judges

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/server/judge/conform"
)

const conformHelp = `Judge whether an API server keeps the documented rules of lists and watches.

It creates a namespace with ConfigMaps and a custom resource, judges some rules by single requests
and the others by random writes that watchers follow, and deletes what it created, also when it is
interrupted. A request that then does not end, as of a credential plugin that waits, is left after 35 s,
and a line on stderr says how to delete what there may be. Without the permission to create a CustomResourceDefinition, it judges ConfigMaps only; with
--namespace it uses an existing namespace.

Each rule has a verdict: kept; broken, with the two facts that disagree; or not offered, if the server
refuses the requests that the rule is about. Stdout has the report, stderr the progress.

Exit codes: 0 no rule is broken, 1 a rule is broken or the server could not be judged, 2 wrong usage,
130 interrupted.`

const conformExample = `  # The server of the current context
  keepwatch conform

  # While it restarts
  keepwatch conform --disturb 'systemctl restart kube-apiserver'

  # For a CI system
  keepwatch conform -o junit > conform.xml`

// conformOptions are the flags of conform.
type conformOptions struct {
	config   *genericclioptions.ConfigFlags
	output   string
	disturb  string
	watchers int
	writes   int
	seed     uint64
}

// NewConformCommand returns `keepwatch conform`.
func NewConformCommand() *cobra.Command {
	o := &conformOptions{config: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:                   "conform [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Judge whether an API server keeps the rules of lists and watches",
		Long:                  conformHelp,
		Example:               conformExample,
		Args:                  exit.Args(cobra.NoArgs),
		RunE:                  func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	o.config.AddFlags(flags)
	flags.Lookup("namespace").Usage = "Use this existing namespace instead of one of the run's own"
	flags.StringVarP(&o.output, "output", "o", "table", "the report's format: table, json or junit")
	flags.StringVar(&o.disturb, "disturb", "",
		"run this shell command behind a third of the writes of each resource; it may restart or compact the server, or restore its storage from a backup")
	flags.IntVar(&o.watchers, "watchers", conform.DefaultWatchers, "watchers of each resource")
	flags.IntVar(&o.writes, "writes", conform.DefaultWrites, "random writes of each resource that the watchers follow")
	flags.Uint64Var(&o.seed, "seed", 0, "repeat the writes of a report's seed; 0 is a random one")
	exit.NotEmpty(flags, "namespace", "disturb")
	return cmd
}

// print returns the function that prints a report.
func (o *conformOptions) print(cmd *cobra.Command) (func(*conform.Report) error, error) {
	stdout := cmd.OutOrStdout()
	switch o.output {
	case "table":
		return func(r *conform.Report) error { return r.PrintTable(stdout) }, nil
	case "json":
		return func(r *conform.Report) error { return r.PrintJSON(stdout) }, nil
	case "junit":
		return func(r *conform.Report) error { return r.PrintJUnit(stdout) }, nil
	}
	return nil, fmt.Errorf("--output %q: give table, json or junit", o.output)
}

func (o *conformOptions) run(cmd *cobra.Command) error {
	print, err := o.print(cmd)
	if err != nil {
		return exit.Usage(err)
	}
	if o.watchers <= 0 || o.writes <= 0 {
		return exit.Usage(fmt.Errorf("--watchers %d, --writes %d: give numbers above 0", o.watchers, o.writes))
	}
	cfg, err := cluster.Connection(o.config)
	if err != nil {
		return err
	}
	klog.SetLogger(klog.Logger{}) // drops all logs of the libraries: their errors are returned
	options := conform.Options{
		Namespace: *o.config.Namespace, Watchers: o.watchers, Writes: o.writes, Seed: o.seed,
		Progress: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), messages.Line(line)) },
	}
	if o.disturb != "" {
		options.Disturb = disturbance(o.disturb, cmd.ErrOrStderr())
	}
	report, err := conform.Run(cmd.Context(), cfg, options)
	if err != nil {
		if cmd.Context().Err() != nil {
			return &exit.Error{Code: exit.CodeInterrupted}
		}
		return err
	}
	if err := print(report); err != nil {
		return err
	}
	if broken := len(report.Broken()); broken > 0 {
		return fmt.Errorf("%s breaks %d of %d rules", report.Server, broken, len(report.Results))
	}
	return nil
}
