package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var tell1 = flag.Bool("sim.trace", false, "tell it")

var (
	schedules = flag.Int("sim.n", 300, "how many schedules to run")
	seed      = flag.Uint64("sim.seed", 1, "the seed of the first; the next ones follow it")
)

// bubble plays a schedule, and turns a deadlock into a problem.
func bubble(t *testing.T, d *Director, m Mutant) (o Outcome) {
	defer func() {
		if r := recover(); r != nil {
			o.Script = d.Taken()
			o.Problems = append(o.Problems, Problem{"deadlock", fmt.Sprint(r)})
		}
	}()
	synctest.Test(t, func(*testing.T) { o = Play(d, m) })
	return o
}

func TestSchedules(t *testing.T) {
	var mu sync.Mutex
	signs := map[string]int{}
	first := map[string]string{}
	events := 0
	var virtual time.Duration
	begin := time.Now()
	next := *seed
	workers := runtime.GOMAXPROCS(0)
	t.Run("run", func(t *testing.T) {
		for w := range workers {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				for {
					mu.Lock()
					n := next
					next++
					mu.Unlock()
					if n >= *seed+uint64(*schedules) {
						return
					}
					o := bubble(t, Draw(Mix{Seed: n, Rate: 12}), Mutant{})
					if *tell1 {
						fmt.Println(o.Script)
						fmt.Println(o.Trace())
						for _, p := range o.Problems {
							fmt.Println(p.Sign, p.Text)
						}
					}
					mu.Lock()
					events += o.Events
					virtual += o.Virtual
					seen := map[string]bool{}
					for _, p := range o.Problems {
						if !seen[p.Sign] {
							signs[p.Sign]++
						}
						seen[p.Sign] = true
						if first[p.Sign] == "" {
							first[p.Sign] = fmt.Sprintf("seed %d: %s", n, p.Text)
						}
					}
					mu.Unlock()
				}
			})
		}
	})
	d := time.Since(begin)
	t.Logf("%d schedules, %d events, %v virtual in %v: %.0f/s", *schedules, events, virtual, d, float64(*schedules)/d.Seconds())
	var all []string
	for s, n := range signs {
		all = append(all, fmt.Sprintf("%s: %d schedules, first %s", s, n, first[s]))
	}
	sort.Strings(all)
	if len(all) > 0 {
		t.Errorf("\n%s", strings.Join(all, "\n"))
	}
}

func TestMain(m *testing.M) { os.Exit(m.Run()) }
