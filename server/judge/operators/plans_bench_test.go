//go:build unix

package operators_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
	"github.com/keepwatch/keepwatch/server/judge/operators"
)

// plansMeasured is the number of plans that BenchmarkPlans runs.
const plansMeasured = 200

// BenchmarkPlans judges a small operator, as a process and as a function, with as many runs at a time as keepwatch
// judge makes by default. Run it with -benchtime 1x. With -figures.record judge it writes the run for docs/judge.md.
func BenchmarkPlans(b *testing.B) {
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv(asOperator, "yes")
	widgets := func(fields string) string {
		var documents []string
		for _, name := range []string{"one", "two", "three", "four"} {
			documents = append(documents, fmt.Sprintf(
				"{apiVersion: example.com/v1, kind: Widget, metadata: {name: %s, namespace: shop}%s}\n", name, fields))
		}
		return strings.Join(documents, "---\n")
	}
	o := operators.Options{
		Operator: operators.Operator{Command: []string{program}},
		CRDs:     []string{write(b, map[string]string{"crd.yaml": definition})},
		Workload: write(b, map[string]string{
			"1-create.yaml": widgets(", spec: {size: 1}"), "2-resize.patch.yaml": widgets(", spec: {size: 2}"),
			"3-gone.delete.yaml": widgets(""), "4-again.yaml": widgets(", spec: {size: 3}"),
		}),
		Limit: plansMeasured, Seed: 1,
	}
	for b.Loop() {
		run := figures.NewRun("bench-judge")
		run.SetLoad()
		starts, err := operators.Starts(b.Context(), o, 20)
		if err != nil {
			b.Fatal(err)
		}
		for i, took := range starts {
			run.Of("a plan", "its server's start and end, at most 300 ms", figures.Seconds).Set(figures.Ours, i, took.Seconds())
		}
		judge := func(o operators.Options, row, bound string) {
			cpu, began := processors(b), time.Now()
			report, err := operators.Run(b.Context(), o)
			if err != nil {
				b.Fatal(err)
			}
			if len(report.Results) != plansMeasured || len(report.Findings) > 0 {
				b.Fatalf("%s: %d plans, findings %v", row, len(report.Results), report.Findings)
			}
			run.Of(row, "time"+bound, figures.Seconds).Set(figures.Ours, 0, time.Since(began).Seconds())
			run.Of(row, "CPU, of the judge and the operator", figures.Seconds).Set(figures.Ours, 0,
				(processors(b) - cpu).Seconds())
		}
		judge(o, fmt.Sprintf("%d plans", plansMeasured), ", at most 600 s")
		function := o
		function.Operator, function.Quiet = operators.Operator{Start: start(variant{do: namedChild})}, 2*longestRetry
		judge(function, fmt.Sprintf("%d plans, a function, 0.1 s of quiet", plansMeasured), "")
		for _, f := range run.Figures {
			b.Logf("%s, %s: %s", f.Row, f.Measure, f.Unit.Format(f.Value(figures.Ours)))
		}
		if err := run.Record(); err != nil {
			b.Fatal(err)
		}
	}
}

// processors returns the CPU time of this process, and of its children that have ended.
func processors(b *testing.B) time.Duration {
	b.Helper()
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if err := syscall.Getrusage(who, &used); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return sum
}
