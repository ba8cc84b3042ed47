package judges

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serving"
	"github.com/keepwatch/keepwatch/server/judge/faults"
)

const faultsHelp = `Serve the API of a cluster, with faults: a proxy that breaks connections, watches and lists by a plan.

A client that is tested uses the kubeconfig of --kubeconfig-out. The plan is a name from
'keepwatch faults plans', or a file in YAML. Writes, and requests that no rule of the plan selects,
pass through unchanged. The seed is printed, and --seed repeats its random decisions.

If the kubeconfig has a token, clients send it themselves. Any other credentials, and all with --as,
are used by the proxy, for every client that has the token in --kubeconfig-out. With --as, clients
cannot impersonate other users.

Exit codes: 0 ended by a signal, 1 error, 2 wrong usage.`

const faultsExample = `  # Break watches of the current context's cluster as etcd's compactions do
  keepwatch faults --plan compaction --record ./run
  kubectl --kubeconfig faults.kubeconfig get pods --watch

  # What did each client do?
  keepwatch faults report ./run

  # Write a plan of your own
  keepwatch faults plans compaction > plan.yaml
  keepwatch faults --plan plan.yaml --seed 7`

// faultsOptions are the flags of faults.
type faultsOptions struct {
	config     *genericclioptions.ConfigFlags
	plan       string
	seed       uint64
	kubeconfig string
	record     string
	listen     string
}

// NewFaultsCommand returns `keepwatch faults`.
func NewFaultsCommand() *cobra.Command {
	o := &faultsOptions{config: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:     "faults --plan PLAN",
		Short:   "Serve the API of a cluster with faults, to test clients",
		Long:    faultsHelp,
		Example: faultsExample,
		Args:    exit.Args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	o.config.Namespace = nil // a plan's rules have it
	o.config.AddFlags(flags)
	flags.StringVar(&o.plan, "plan", "", "a named plan, or a file")
	flags.Uint64Var(&o.seed, "seed", 0, "repeat the random decisions of this seed (default the plan's, or a random one)")
	flags.StringVar(&o.kubeconfig, "kubeconfig-out", "./faults.kubeconfig",
		"write a kubeconfig for the proxy to this file once it is ready")
	flags.StringVar(&o.record, "record", "",
		"write the plan with its seed, and a line for each request, to this new folder")
	flags.StringVar(&o.listen, "listen", "127.0.0.1:0", "serve HTTPS on this address; port 0 uses a free port")
	exit.NotEmpty(flags, "kubeconfig-out", "record")
	cmd.AddCommand(newFaultsPlansCommand(), newFaultsReportCommand())
	return cmd
}

func (o *faultsOptions) run(cmd *cobra.Command) error {
	plan, err := o.readPlan()
	if err != nil {
		return exit.Usage(err)
	}
	cfg, err := cluster.Connection(o.config)
	if err != nil {
		return err
	}
	if o.record != "" {
		if err := makeRecord(o.record); err != nil {
			return err
		}
	}
	proxy, err := faults.Start(cfg, plan, faults.Options{Listen: o.listen, Record: o.record})
	if errors.As(err, new(*net.OpError)) {
		return serving.ListenError("--listen", o.listen, err)
	}
	if err != nil {
		return err
	}
	if err := cluster.WriteKubeconfig(o.kubeconfig, "faults", proxy.Config()); err != nil {
		return errors.Join(err, proxy.Close())
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "keepwatch: ready at %s, kubeconfig %s, plan %s, seed %d\n", proxy.Config().Host,
		o.kubeconfig, o.plan, proxy.Seed())
	<-cmd.Context().Done()
	if err = cluster.Leave(cmd.Context(), proxy.Close); errors.As(err, new(cluster.Left)) {
		return &exit.Error{Code: exit.CodeInterrupted}
	}
	return err
}

// readPlan returns the plan of a name or a file. A name precedes a file of this name.
func (o *faultsOptions) readPlan() (faults.Plan, error) {
	if o.plan == "" {
		return faults.Plan{}, errors.New("--plan is missing; see 'keepwatch faults plans'")
	}
	plan, _, err := faults.NamedPlan(o.plan)
	if err != nil {
		var file error
		if plan, file = faults.ReadPlan(o.plan); errors.Is(file, fs.ErrNotExist) {
			return faults.Plan{}, fmt.Errorf("--plan: %w, and there is no such file; see 'keepwatch faults plans'", err)
		} else if file != nil {
			return faults.Plan{}, fmt.Errorf("--plan: %w", file)
		} else if len(plan.Rules) == 0 {
			return faults.Plan{}, fmt.Errorf("--plan: the file %s has no rules, and so no faults", o.plan)
		}
	}
	if o.seed != 0 {
		plan.Seed = o.seed
	}
	return plan, nil
}

// makeRecord makes the folder of --record.
func makeRecord(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	files, err := os.ReadDir(folder)
	if err == nil && len(files) > 0 {
		err = fmt.Errorf("%s is not empty", folder)
	}
	if err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	return nil
}

func newFaultsPlansCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "plans [NAME]",
		Short: "List the named plans, or print one",
		Args:  exit.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if len(args) == 1 {
				_, text, err := faults.NamedPlan(args[0])
				if err != nil {
					return exit.Usage(err)
				}
				_, err = out.Write(text)
				return err
			}
			for _, p := range faults.Plans() {
				if _, err := fmt.Fprintf(out, "%s\n    %s\n    %s\n", p.Name, p.Description, p.Incident); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

const faultsReportHelp = `Report what each client did, by its user agent, from the folder of --record.

A retry is a request for the resource of an earlier one that failed or met a fault. PAUSE is the
longest time between the end of such a request and its retry, FASTEST the shortest time between the
starts of two requests of one kind of which the first failed, PER SECOND the highest number of
requests within a second.`

func newFaultsReportCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Report the faults, lists, watches and retries of each client",
		Long:  faultsReportHelp,
		Args:  exit.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return exit.Usage(fmt.Errorf("--output %q: give table or json", output))
			}
			entries, err := faults.ReadTranscript(args[0])
			if err != nil {
				return err
			}
			clients := faults.Report(entries)
			if output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(clients)
			}
			return printClients(cmd.OutOrStdout(), clients)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "the report's format: table or json")
	return cmd
}

// printClients prints a table of clients, and then the faults of each.
func printClients(out io.Writer, clients []faults.Client) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLIENT\tREQUESTS\tLISTS\tPAGES\tWATCHES\tEVENTS\tFAULTS\tRETRIES\tPAUSE\tFASTEST\tPER SECOND")
	for _, c := range clients {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%d\n", programName(c), c.Requests, c.Lists, c.Pages,
			c.Watches, c.Events,
			sum(c.Faults), c.Retries, seconds(c.LongestPause), seconds(c.FastestRepetition), c.MostPerSecond)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, c := range clients {
		var counts []string
		for _, name := range slices.Sorted(maps.Keys(c.Faults)) {
			counts = append(counts, fmt.Sprintf("%d × %s", c.Faults[name], name))
		}
		if len(counts) > 0 {
			fmt.Fprintf(out, "\n%s met %s\n", programName(c), strings.Join(counts, ", "))
		}
	}
	return nil
}

// programName is the first part of a user agent, which names the program and its version.
func programName(c faults.Client) string {
	name, _, _ := strings.Cut(c.UserAgent, " ")
	if name == "" {
		return "-"
	}
	return strings.Trim(strconv.QuoteToASCII(name[:min(len(name), 60)]), `"`)
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3fs", d.Seconds())
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}
