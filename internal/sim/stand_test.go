package sim

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"
)

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

// stand plays schedules on all cores and sums them up.
type stand struct {
	report *Report
	// progress is called now and then, with nobody else at the report; may be nil.
	progress func(*Report)

	mu   sync.Mutex
	next int
}

// run plays as many schedules as planned, in order, or until ctx is done.
func (s *stand) run(ctx context.Context, t *testing.T, play func(t *testing.T, n int) Outcome) *Report {
	over := make(chan struct{})
	var watching sync.WaitGroup
	if s.progress != nil {
		watching.Go(func() { s.watch(over) })
	}
	t.Run("schedules", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for n := s.take(); n < s.report.Planned && ctx.Err() == nil; n = s.take() {
					s.add(play(t, n))
				}
			})
		}
	})
	close(over)
	watching.Wait()
	return s.report
}

func (s *stand) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return s.next - 1
}

func (s *stand) add(o Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Add(o)
}

// watch calls progress until all is over.
func (s *stand) watch(over <-chan struct{}) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mu.Lock()
			s.progress(s.report)
			s.mu.Unlock()
		case <-over:
			return
		}
	}
}

// verdict fails the test by what the report has, each kind of problem once: as a
// schedule that is as short as can be, and kept.
func verdict(t *testing.T, r *Report) {
	for sign, o := range r.First() {
		for _, p := range o.Problems {
			if p.Sign == sign {
				t.Errorf("seed %d (%s) %s: %s", o.Seed, o.Style, p.Sign, p.Text)
				explain(t, o, sign)
				break
			}
		}
	}
	if r.Failed > 0 {
		t.Errorf("%d schedules have problems: %v", r.Failed, r.Signs)
	}
}

// explain shrinks a schedule with a problem, and keeps it.
func explain(t *testing.T, o Outcome, sign string) {
	short := Shrink(o.Script, func(s Script) bool { return bubble(t, Follow(s), Mutant{}).shows(sign) })
	t.Logf("shrunk to %d of %d decisions:\n%s", len(short), len(o.Script), short)
	again := bubble(t, Follow(short), Mutant{})
	if *story {
		t.Logf("%v\n%s", again.Problems, again.Trace())
	}
	if *save == "" {
		return
	}
	a := txtar.Archive{
		Comment: fmt.Appendf(nil, "seed %d (%s)\n", o.Seed, o.Style),
		Files:   []txtar.File{{Name: "script", Data: []byte(short.String())}},
	}
	for _, p := range again.Problems {
		a.Comment = fmt.Appendf(a.Comment, "%s: %s\n", p.Sign, p.Text)
	}
	name := filepath.Join(*save, fmt.Sprintf("%s-%d.txtar", strings.ReplaceAll(sign, " ", "-"), o.Seed))
	write(t, name, func(w io.Writer) { _, _ = w.Write(txtar.Format(&a)) })
	t.Logf("kept as %s; in internal/sim/testdata it is a regression", name)
}

// write makes a file, and the folders above it.
func write(t *testing.T, path string, content func(io.Writer)) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	content(f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
