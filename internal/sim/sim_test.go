package sim

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/tools/txtar"
)

var (
	number  = flag.Int("sim.n", 1500, "how many schedules to run")
	seed    = flag.Uint64("sim.seed", 1, "the seed of the first; the next ones follow it")
	report  = flag.String("sim.report", "", "file to write the report to")
	save    = flag.String("sim.save", "", "folder to write shrunk schedules with problems to")
	story   = flag.Bool("sim.story", false, "tell each schedule with a problem from beginning to end")
	mutants = flag.Int("sim.mutants", 200, "how many schedules to run against each mutant")
	repeat  = flag.Int("sim.repeat", 40, "how many schedules to run again, to see that they run the same way")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble plays a schedule, and turns a deadlock into a problem.
func bubble(t *testing.T, d *Director, m Mutant) (o Outcome) {
	defer func() {
		if r := recover(); r != nil {
			o = Outcome{Script: d.Taken(), Problems: []Problem{{"deadlock", fmt.Sprint(r)}}, trace: func() string { return "" }}
		}
	}()
	synctest.Test(t, func(*testing.T) { o = Play(d, m) })
	return o
}

// run plays a campaign on all cores.
func run(t *testing.T, c Campaign) *Report {
	r := NewReport(c.Seed)
	var mu sync.Mutex
	var next atomic.Int64
	begin := time.Now()
	t.Run("schedules", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for {
					n := int(next.Add(1)) - 1
					if n >= c.Schedules {
						return
					}
					o := c.Play(n, func(d *Director, m Mutant) Outcome { return bubble(t, d, m) })
					mu.Lock()
					r.Add(o)
					mu.Unlock()
				}
			})
		}
	})
	r.Real = time.Since(begin)
	slices.SortFunc(r.Bad, func(a, b Outcome) int { return int(a.Seed) - int(b.Seed) })
	return r
}

// TestSchedules: no schedule of faults breaks a promise.
func TestSchedules(t *testing.T) {
	r := run(t, Campaign{Seed: *seed, Schedules: *number})
	t.Logf("%d schedules, %d events, %.0f virtual hours in %v (%.0f schedules/s); %d pairs of faults",
		r.Schedules, r.Events, r.Virtual.Hours(), r.Real.Round(time.Millisecond), float64(r.Schedules)/r.Real.Seconds(), len(r.Pairs))
	if *report != "" {
		write(t, *report, r.Write)
	}
	shown := map[string]int{}
	for _, o := range r.Bad {
		for _, p := range o.Problems {
			if shown[p.Sign]++; shown[p.Sign] == 1 {
				t.Errorf("seed %d (%s) %s: %s", o.Seed, o.Style, p.Sign, p.Text)
				explain(t, o, p)
			}
		}
	}
	if len(r.Bad) > 0 {
		t.Errorf("%d schedules have problems: %v", len(r.Bad), shown)
	}
}

// explain shrinks a schedule with a problem, and keeps it.
func explain(t *testing.T, o Outcome, p Problem) {
	short := Shrink(o.Script, func(s Script) bool { return bubble(t, Follow(s), Mutant{}).shows(p.Sign) })
	t.Logf("shrunk to %d of %d decisions:\n%s", len(short), len(o.Script), short)
	again := bubble(t, Follow(short), Mutant{})
	if *story {
		t.Logf("%v\n%s", again.Problems, again.Trace())
	}
	if *save != "" {
		a := txtar.Archive{
			Comment: fmt.Appendf(nil, "%s: %s\n", p.Sign, again.Problems[0].Text),
			Files:   []txtar.File{{Name: "script", Data: []byte(short.String())}},
		}
		name := fmt.Sprintf("%s-%d.txtar", strings.ReplaceAll(p.Sign, " ", "-"), o.Seed)
		write(t, filepath.Join(*save, name), func(w io.Writer) { _, _ = w.Write(txtar.Format(&a)) })
	}
}

func write(t *testing.T, path string, content func(io.Writer)) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	content(f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRegressions plays the schedules that once showed a problem.
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
			if t.Failed() && *story {
				t.Log(o.Trace())
			}
		})
	}
}

// TestMutants: bugs that others had are noticed.
func TestMutants(t *testing.T) {
	const least = 10
	var b strings.Builder
	for _, m := range Mutants {
		r := run(t, Campaign{Seed: *seed, Schedules: *mutants, Mutant: m})
		signs := map[string]int{}
		for _, o := range r.Bad {
			signs[o.Problems[0].Sign]++
		}
		fmt.Fprintf(&b, "%4d of %d  %-24s %v  %s\n", len(r.Bad), r.Schedules, m.Name, signs, m.Seen)
		if len(r.Bad) < least {
			t.Errorf("%s is noticed in %d of %d schedules only", m.Name, len(r.Bad), r.Schedules)
		}
	}
	t.Logf("schedules that noticed a mutant, and by what:\n%s", &b)
}

// TestAScheduleAlwaysRunsTheSameWay: by its seed, and by its script.
func TestAScheduleAlwaysRunsTheSameWay(t *testing.T) {
	for n := range uint64(*repeat) {
		m := Mix{Seed: *seed + n, Rate: 20}
		first := bubble(t, Draw(m), Mutant{})
		for again, o := range map[string]Outcome{
			"seed":   bubble(t, Draw(m), Mutant{}),
			"script": bubble(t, Follow(first.Script), Mutant{}),
		} {
			if d := cmp.Diff(strings.Split(first.Trace(), "\n"), strings.Split(o.Trace(), "\n")); d != "" {
				t.Fatalf("seed %d runs another way by its %s:\n%s", m.Seed, again, d)
			}
		}
	}
}
