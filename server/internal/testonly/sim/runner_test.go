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
			o = Outcome{Script: d.Script(), Problems: []Problem{{"deadlock", fmt.Sprint(r)}}, trace: func() string { return "" }}
		}
	}()
	synctest.Test(t, func(*testing.T) { o = Play(d, m) })
	return o
}

// runner plays schedules on all cores and sums them up.
type runner struct {
	report *Report
	// progress is called every ten seconds with the report locked; may be nil.
	progress func(*Report)
	// enough ends the run after so many schedules with problems; 0 means never.
	enough int

	mu      sync.Mutex
	started int
}

// run plays as many schedules as planned, in order, or until ctx is done.
func (s *runner) run(ctx context.Context, t *testing.T, play func(t *testing.T, n int) Outcome) *Report {
	over := make(chan struct{})
	var watching sync.WaitGroup
	if s.progress != nil {
		watching.Go(func() { s.watch(over) })
	}
	t.Run("schedules", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for n := s.next(); n < s.report.Planned && ctx.Err() == nil; n = s.next() {
					s.add(play(t, n))
				}
			})
		}
	})
	close(over)
	watching.Wait()
	return s.report
}

func (s *runner) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.enough > 0 && s.report.Failed >= s.enough {
		return s.report.Planned
	}
	s.started++
	return s.started - 1
}

func (s *runner) add(o Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Add(o)
}

// watch calls progress until over is closed.
func (s *runner) watch(over <-chan struct{}) {
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

// fail reports each kind of problem once, with a shrunk schedule that it saves.
func fail(t *testing.T, r *Report) {
	for sign, o := range r.First() {
		for _, p := range o.Problems {
			if p.Sign == sign {
				t.Errorf("seed %d (%s) %s: %s", o.Seed, o.Style, p.Sign, p.Text)
				shrinkAndSave(t, o, sign)
				break
			}
		}
	}
	if r.Failed > 0 {
		t.Errorf("%d schedules have problems: %v", r.Failed, r.Signs)
	}
}

// shrinkAndSave shrinks a schedule with a problem and saves it.
func shrinkAndSave(t *testing.T, o Outcome, sign string) {
	short := Shrink(o.Script, func(s Script) bool { return bubble(t, Follow(s), Mutant{}).shows(sign) })
	t.Logf("shrunk to %d of %d decisions:\n%s", len(short), len(o.Script), short)
	again := bubble(t, Follow(short), Mutant{})
	if *showTrace {
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
	t.Logf("saved as %s; in internal/sim/testdata it is a regression", name)
}

// write writes a file, and creates the folders above it.
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
