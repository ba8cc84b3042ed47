package sim

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

var (
	number    = flag.Int("sim.n", 1500, "how many schedules to run")
	seed      = flag.Uint64("sim.seed", 1, "the seed of the first; the next ones follow it")
	report    = flag.String("sim.report", "", "file to write the report to, every ten seconds and at the end")
	save      = flag.String("sim.save", "", "folder to write shrunk schedules with problems to")
	showTrace = flag.Bool("sim.story", false, "print the trace of each schedule with a problem")
	swept     = flag.Int("sim.swept", 3, "how many clean schedules to run with each fault at each mark")
	mutants   = flag.Int("sim.mutants", 200, "how many schedules to run against each mutant")
	repeat    = flag.Int("sim.repeat", 40, "how many schedules to run again, to check that they are deterministic")
)

// atMost returns n, or with -short at most short: make test is for a person who waits.
func atMost(short, n int) int {
	if testing.Short() {
		return min(n, short)
	}
	return n
}

func TestMain(m *testing.M) {
	debug.SetGCPercent(400)         // schedules are short and small
	utilruntime.ErrorHandlers = nil // the faults provoke the errors that are reported there
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(await.Tests(m))
}

// TestSchedules checks that no schedule of faults breaks a promise. If it is interrupted, it
// reports the schedules that it has run.
func TestSchedules(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *number < 1 {
		t.Fatalf("-sim.n is %d, but must be positive", *number)
	}
	s := runner{report: NewReport(*seed, atMost(500, *number))}
	if *report != "" {
		s.progress = func(r *Report) {
			fmt.Fprintln(os.Stderr, r.Line())
			write(t, *report, r.Write)
		}
	}
	c := Campaign{Seed: *seed}
	r := s.run(ctx, t, func(t *testing.T, n int) Outcome {
		return c.Play(n, func(d *Director, m Mutant) Outcome { return bubble(t, d, m) })
	})
	t.Log(r.Line())
	if s.progress != nil {
		s.progress(r)
		fmt.Fprintf(os.Stderr, "the report is in %s\n", *report)
	}
	stop()
	fail(t, r)
}

// TestSweep adds each fault at each deletion, recreation, relist and resume of a schedule of
// writes alone.
func TestSweep(t *testing.T) {
	if *swept == 0 {
		t.Skip("-sim.swept is 0")
	}
	for i := range uint64(atMost(1, *swept)) {
		scripts := Sweep(bubble(t, clean(*seed+i), Mutant{}))
		s := runner{report: NewReport(*seed+i, len(scripts))}
		r := s.run(t.Context(), t, func(t *testing.T, n int) Outcome {
			o := bubble(t, Follow(scripts[n]), Mutant{})
			o.Seed, o.Style = *seed+i, Swept
			return o
		})
		t.Log(r.Line())
		fail(t, r)
	}
}

// TestRegressions plays the schedules that have shown a problem before.
func TestRegressions(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := ParseScript(string(a.Files[0].Data))
			if err != nil {
				t.Fatal(err)
			}
			o := bubble(t, Follow(s), Mutant{})
			for _, p := range o.Problems {
				t.Errorf("%s: %s", p.Sign, p.Text)
			}
			if t.Failed() && *showTrace {
				t.Log(o.Trace())
			}
		})
	}
}

// TestMutants checks that the simulation detects the planted bugs. With -short a mutant is given up once enough
// schedules have detected it.
func TestMutants(t *testing.T) {
	if *mutants == 0 {
		t.Skip("-sim.mutants is 0")
	}
	const least = 10
	var b strings.Builder
	for _, m := range Mutants {
		c := Campaign{Seed: *seed, Mutant: m}
		s := runner{report: NewReport(*seed, *mutants)}
		if testing.Short() {
			s.enough = least
		}
		r := s.run(context.Background(), t, func(t *testing.T, n int) Outcome {
			return c.Play(n, func(d *Director, m Mutant) Outcome { return bubble(t, d, m) })
		})
		fmt.Fprintf(&b, "%4d of %d  %-24s %v  %s\n", r.Failed, r.Schedules, m.Name, r.Signs, m.Seen)
		if r.Failed < least {
			t.Errorf("%s is detected in %d of %d schedules only", m.Name, r.Failed, r.Schedules)
		}
	}
	t.Logf("schedules that detected a mutant, and the problems:\n%s", &b)
}

// TestDeterministic checks that a schedule runs in the same way by its seed and by its script.
func TestDeterministic(t *testing.T) {
	c := Campaign{Seed: *seed}
	play := func(d *Director, m Mutant) Outcome { return bubble(t, d, m) }
	for n := range atMost(10, *repeat) {
		first := c.Play(n, play)
		for again, o := range map[string]Outcome{
			"seed":   c.Play(n, play),
			"script": bubble(t, Follow(first.Script), Mutant{}),
		} {
			if d := cmp.Diff(strings.Split(first.Trace(), "\n"), strings.Split(o.Trace(), "\n")); d != "" {
				t.Fatalf("seed %d differs by its %s:\n%s", first.Seed, again, d)
			}
		}
	}
}
