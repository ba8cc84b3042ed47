package judges

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/server/judge/operators"
)

const judgeHelp = `Judge an operator: disturb each of its writes, and see whether it recovers.

The operator is a command in any language, unchanged. It is started with KUBECONFIG in its
environment, and {kubeconfig} in its arguments is replaced by the same path, in front of an API
server of this process. {port} is a port for its webhooks, and {certs} a folder with tls.crt and
tls.key; the webhook configurations of --webhooks are called there.

The workload is a folder: each file is a step, in the order of their names. *.patch.yaml is merged
into objects, *.delete.yaml deletes them, *.wait.yaml waits until they have these fields, *.advance
has a duration by which simulated time moves, and other YAML files are applied. A step ends when the
operator is quiet. Without a workload, the samples are created, changed field by field, deleted, and
created again.

Three runs without a fault are the reference: their states, and the operator's writes. Then each
plan has a run with one fault, after which every step must end in the same state. Several runs are
made at a time: an operator that listens on fixed ports needs a flag for others, or --parallel 1.

The plans:
%s
Stdout has the report, stderr the progress.

Exit codes: 0 no finding that is not expected, 1 a finding, or the operator could not be judged, 2 wrong usage,
130 interrupted.`

const judgeExample = `  # An operator with its definitions, its roles and a workload
  keepwatch judge --crds config/crd --rbac config/rbac --workload testdata/judge -- ./bin/manager --leader-elect=false

  # One kind of plans, and one plan of a report
  keepwatch judge … --plan lost-answer -- ./bin/manager
  keepwatch judge … --plan lost-answer:1:create:configmaps:default/web:1 -- ./bin/manager

  # For a CI system, with the record of each finding
  keepwatch judge … -o junit --record ./record -- python operator.py > judge.xml`

// judgeOptions are the flags of judge.
type judgeOptions struct {
	judged   operators.Options
	output   string
	record   string
	expected string
	shrink   bool
	next     string
}

// NewJudgeCommand returns `keepwatch judge`.
func NewJudgeCommand() *cobra.Command {
	o := &judgeOptions{}
	cmd := &cobra.Command{
		Use:                   "judge [--workload DIR] [flags] -- COMMAND [ARGUMENT...]",
		DisableFlagsInUseLine: true,
		Short:                 "Judge an operator: disturb each of its writes, and see whether it recovers",
		Long:                  fmt.Sprintf(judgeHelp, describePlans()),
		Example:               judgeExample,
		Args:                  exit.Args(cobra.MinimumNArgs(1)),
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	flags, j := cmd.Flags(), &o.judged
	flags.SetInterspersed(false) // what follows the command is its own
	flags.StringVar(&j.Workload, "workload", "", "the folder with the steps")
	flags.StringArrayVar(&j.Samples, "samples", nil,
		"a file or folder from which a workload is derived, without --workload; repeatable (default "+
			operators.DefaultSamples+")")
	flags.StringVar(&o.next, "next", "",
		"the command of the operator's next version, split at spaces, which takes over half-way")
	flags.StringArrayVar(&j.CRDs, "crds", nil,
		"a file or folder with CustomResourceDefinitions and other objects that exist before; repeatable")
	flags.StringArrayVar(&j.RBAC, "rbac", nil,
		"a file or folder with the operator's roles, as whose ServiceAccount it runs; repeatable (default everything is allowed)")
	flags.StringArrayVar(&j.Webhooks, "webhooks", nil,
		"a file or folder with webhook configurations, which are called at {port}; repeatable (default "+
			operators.DefaultWebhooks+")")
	flags.StringArrayVar(&j.Plans, "plan", nil,
		"run this kind of plans, or this plan of a report, or none; repeatable (default all)")
	flags.StringVar(&j.Steps, "steps", "",
		"perform only these files of the workload, or objects in them: 1,3.2 (default all)")
	flags.BoolVar(&o.shrink, "shrink", true, "look for the smallest workload that shows a finding")
	flags.IntVar(&j.Limit, "limit", 0, "run at most this number of plans, chosen by the seed; 0 is all")
	flags.Uint64Var(&j.Seed, "seed", 0, "choose the plans of --limit as the report of this seed; 0 is a random one")
	flags.BoolVar(&j.Simulate, "simulate", true, "let pods and workloads become ready, without containers")
	flags.DurationVar(&j.Quiet, "quiet", operators.DefaultQuiet,
		"the time without activity after which the operator is quiet")
	flags.DurationVar(&j.Patience, "patience", operators.DefaultPatience,
		"the time for a step; give more than the operator waits before it retries")
	flags.IntVar(&j.Repeat, "repeat", operators.DefaultRepeat, "how often a plan with a finding runs")
	flags.IntVar(&j.Parallel, "parallel", 0, "runs at a time (default four a processor)")
	flags.StringVar(&o.expected, "expected", "", "a file with the findings that are accepted, and why")
	flags.StringVarP(&o.output, "output", "o", "table", "the report's format: table, json, junit or html")
	flags.StringVar(&o.record, "record", "",
		"write the report in all formats, and the operator's output, to this new folder")
	exit.NotEmpty(flags, "workload", "next", "steps", "expected", "record")
	return cmd
}

// describePlans lists the kinds of plans.
func describePlans() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, kind := range operators.Kinds {
		fmt.Fprintf(table, "  %s\t%s\n", kind.Name, kind.Sentence)
	}
	_ = table.Flush() // to memory
	return b.String()
}

// judgePrinters are the formats of a report.
var judgePrinters = map[string]func(*operators.Report, io.Writer) error{
	"table": (*operators.Report).PrintTable, "json": (*operators.Report).PrintJSON,
	"junit": (*operators.Report).PrintJUnit,
	"html":  (*operators.Report).PrintHTML,
}

func (o *judgeOptions) run(cmd *cobra.Command, args []string) error {
	print := judgePrinters[o.output]
	if print == nil {
		return exit.Usage(fmt.Errorf("--output %q: give table, json, junit or html", o.output))
	}
	o.judged.Operator.Command, o.judged.Whole = args, !o.shrink
	if words := strings.Fields(o.next); len(words) > 0 {
		o.judged.Next = &operators.Operator{Command: words}
	}
	if o.expected != "" {
		var err error
		if o.judged.Expected, err = operators.ReadExpectations(o.expected); err != nil {
			return exit.Usage(fmt.Errorf("--expected: %w", err))
		}
	}
	if err := o.judged.Check(); err != nil {
		return exit.Usage(err)
	}
	log, err := o.openRecord()
	if err != nil {
		return err
	}
	defer log.Close()
	if log != nil {
		o.judged.Operator.Output = log
		if o.judged.Next != nil {
			o.judged.Next.Output = log
		}
	}
	o.judged.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), messages.Indented(line)) }
	klog.SetLogger(klog.Logger{}) // drops all logs of the libraries: a disturbed server has many
	report, err := operators.Run(cmd.Context(), o.judged)
	if err != nil {
		if cmd.Context().Err() != nil {
			return &exit.Error{Code: exit.CodeInterrupted}
		}
		return err
	}
	if err := errors.Join(print(report, cmd.OutOrStdout()), o.writeRecord(report)); err != nil {
		return err
	}
	return report.Err()
}

// openRecord makes the folder of the record, and returns the file for the operator's output, or nil without a record.
func (o *judgeOptions) openRecord() (*os.File, error) {
	if o.record == "" {
		return nil, nil
	}
	if err := makeRecord(o.record); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(o.record, "operator.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}

func (o *judgeOptions) writeRecord(report *operators.Report) error {
	if o.record == "" {
		return nil
	}
	files := map[string]string{"report.txt": "table", "report.json": "json", "report.xml": "junit", "report.html": "html"}
	for name, format := range files {
		file, err := os.Create(filepath.Join(o.record, name))
		if err != nil {
			return err
		}
		if err := errors.Join(judgePrinters[format](report, file), file.Close()); err != nil {
			return err
		}
	}
	return nil
}
