package sinktest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// Config describes a run.
type Config struct {
	Sink sink.Sink
	// Tables reads what the sink has stored, beside it: the tables of a database, which must exist, or the [Fold] of a
	// receiver.
	Tables Reader
	// Repeats is true for a sink that delivers pieces again after an error of a commit that has taken place, or whose
	// server loses commits. The pieces are then not judged by package check.
	Repeats bool
	// CurrentOnly is true for a sink without history, or whose server loses commits: it is compared only while its
	// sources rest.
	CurrentOnly bool
	Seed        uint64
	// Steps is the number of events that happen to the sources.
	Steps int
	// ReplacesNUL is true for a sink that replaces U+0000 by U+FFFD.
	ReplacesNUL bool
	// Disturb, if set, is called at times from the goroutine of Run: it kills and restarts the
	// database, for example.
	Disturb func()
	// FailOver, if set, is called in place of Disturb. It replaces the server by one that lacks the last commits, and
	// reports whether it has done so. It is called while the sources rest and everything is committed, so that a seed
	// repeats which commits are lost. The sink must notice it although no change follows.
	FailOver func() bool
	// Patience bounds the wait for the tables to equal the sources.
	Patience time.Duration
}

// Reader reads what a sink has stored.
type Reader interface {
	// Current returns the current objects of a line.
	Current(ctx context.Context, line int) ([]Row, error)
	// AsOf returns the objects of a line at its newest cut.
	AsOf(ctx context.Context, line int, cut sink.Cut) ([]Row, error)
	// Invariants returns what is wrong in everything that was stored, whatever the sources were.
	Invariants(ctx context.Context) (problems []string, err error)
}

// Report is the outcome of a run.
type Report struct {
	Problems []string
	Cuts     int // at which the tables were compared
	Gaps     int
	Failed   int // commits
	Epochs   int
}

// Streams returns the streams of a run, as a sink's Open takes them.
func Streams() []sink.Stream {
	var streams []sink.Stream
	for line, resources := range lines {
		for _, r := range resources {
			streams = append(streams, sink.Stream{ID: stream.Identity{Resource: r, Cluster: stream.Cluster{UID: "test"}},
				Line: line})
		}
	}
	return streams
}

// lines are the resources of two etcds.
var lines = [][]string{{"pods", "widgets.example.com", "configmaps"}, {"events"}}

// runner is one run.
type runner struct {
	Config
	worlds []*world
	sink   *flaky
	random *rand.Rand
	stuck  bool // the tables did not become the sources' state

	mu          sync.Mutex
	report      Report
	cuts        map[int]sink.Cut
	transcripts []*transcript
	ended       error // of the transfer, if it ended by itself
}

// Run transfers changes until ctx is done, all steps are done, or the tables do not become the sources' state, and
// returns what was wrong. An error is one of reading the tables.
func Run(ctx context.Context, c Config) (Report, error) {
	r := &runner{Config: c, random: rand.New(rand.NewPCG(c.Seed, 7)), cuts: map[int]sink.Cut{}}
	r.sink = &flaky{Sink: c.Sink, committed: r.record, random: rand.New(rand.NewPCG(c.Seed, 8)), every: 12}
	var resources []transfer.Resource
	for line, names := range lines {
		r.worlds = append(r.worlds, newWorld(c.Seed, keepwatch.Revision(10+1000*line), names...))
	}
	for _, s := range Streams() {
		resources = append(resources, transfer.Resource{Stream: s, Source: &source{r.worlds[s.Line], s.ID.Resource}})
		r.transcripts = append(r.transcripts, newTranscript())
	}
	t := transfer.New(r.sink, resources, transfer.Options{Cut: r.cut})
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := t.Run(running); running.Err() == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ended = err
		}
	}()
	for i := 0; i < c.Steps && !r.stuck; i++ {
		r.step(ctx)
	}
	r.sink.calm()
	r.settle(ctx)
	stop()
	<-done
	return r.judge(ctx)
}

// step lets one thing happen to the sources.
func (r *runner) step(ctx context.Context) {
	w := r.worlds[r.random.IntN(len(r.worlds))]
	switch n := r.random.IntN(30); {
	case n < 20:
		w.write(1 + r.random.IntN(12))
	case n < 23:
		w.compact()
	case n < 26:
		w.disconnect()
	case n < 27:
		r.settle(ctx)
	case n < 28:
		// A revision does not show which history it belongs to: nobody can notice that the
		// source was restored after it has passed their cursor again. The cursor of a sink that
		// repeats may be below what was delivered, until all is committed.
		if r.Repeats {
			r.settle(ctx)
		}
		w.restore()
		r.settle(ctx)
	case r.FailOver != nil:
		r.settle(ctx)
		r.failOver()
	case r.Disturb != nil:
		r.Disturb()
	}
	time.Sleep(time.Duration(r.random.IntN(20)) * time.Millisecond)
}

// settle waits until the tables equal the sources. After a wait that failed it does nothing.
func (r *runner) settle(ctx context.Context) {
	if r.stuck {
		return
	}
	var differs []string
	wait := 10 * time.Millisecond
	for end := time.Now().Add(r.Patience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(wait) {
		wait = min(2*wait, time.Second)
		if differs = r.differences(ctx); len(differs) == 0 {
			return
		}
		r.mu.Lock()
		ended := r.ended
		r.mu.Unlock()
		if ended != nil {
			r.stuck = true
			r.problem("the transfer ended: %v", ended)
			return
		}
	}
	r.stuck = true
	r.problem("the tables are not the sources' state: %v, cuts %v", differs, r.cuts)
}

// differences compares the cuts with the sources and, once these are the newest, the current rows.
func (r *runner) differences(ctx context.Context) (problems []string) {
	states := make([]map[id]*object, len(r.worlds))
	for line, w := range r.worlds {
		head, state := w.head()
		states[line] = state
		r.mu.Lock()
		cut := r.cuts[line]
		r.mu.Unlock()
		if cut.Revision != head {
			problems = append(problems, fmt.Sprintf("line %d has a cut at %d, and its source is at %d", line, cut.Revision,
				head))
		}
	}
	if len(problems) > 0 {
		return problems
	}
	for line, state := range states {
		rows, err := r.Tables.Current(ctx, line)
		if err != nil {
			return append(problems, err.Error())
		}
		problems = append(problems, compare(rows, state, r.ReplacesNUL)...)
	}
	return problems
}

// cut compares the rows that are valid at a cut with the source at that revision.
func (r *runner) cut(line int, cut sink.Cut) {
	if r.CurrentOnly {
		r.noteCut(line, cut)
		return
	}
	rows, err := r.Tables.AsOf(context.Background(), line, cut)
	for began := time.Now(); err != nil && r.Disturb != nil &&
		time.Since(began) < r.Patience; time.Sleep(10 * time.Millisecond) {
		rows, err = r.Tables.AsOf(context.Background(), line, cut) // the database was killed
	}
	if err != nil {
		r.problem("read the tables: %v", err)
		return
	}
	var first []string
	for _, state := range r.worlds[line].at(cut.Revision) {
		differs := compare(rows, state, r.ReplacesNUL)
		if len(differs) == 0 {
			first = nil
			break
		}
		first = differs
	}
	if first != nil {
		r.problem("at the cut %+v of line %d: %v", cut, line, first)
	}
	r.noteCut(line, cut)
}

func (r *runner) noteCut(line int, cut sink.Cut) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cuts[line] = cut
	r.report.Cuts++
	r.report.Epochs = max(r.report.Epochs, cut.Epoch)
}

// failOver replaces the server. If that has lost commits, settle waits for new cuts: the tables are those of an earlier
// one.
func (r *runner) failOver() {
	if r.stuck {
		return
	}
	r.mu.Lock()
	before := r.cuts
	r.cuts = map[int]sink.Cut{} // before the loss, which the transfer may notice at once
	r.mu.Unlock()
	if r.FailOver() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.Copy(before, r.cuts)
	r.cuts = before
}

// record records what was committed.
func (r *runner) record(batch sink.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range batch.Pieces {
		r.transcripts[p.Stream].add(p)
		for _, m := range p.Messages {
			if _, ok := m.(stream.Gap); ok {
				r.report.Gaps++
			}
		}
	}
}

func (r *runner) judge(ctx context.Context) (Report, error) {
	wrong, err := r.Tables.Invariants(ctx)
	if err != nil {
		return r.report, err
	}
	for _, p := range wrong {
		r.problem("%s", p)
	}
	transcripts := r.transcripts
	if c, ok := r.Tables.(*Consumer); ok {
		transcripts = c.transcripts() // which commits have taken place is not known here
	}
	if r.CurrentOnly || r.Repeats {
		transcripts = nil
	}
	for i, s := range Streams()[:len(transcripts)] {
		for _, p := range transcripts[i].judge(r.worlds[s.Line].history(s.ID.Resource)) {
			r.problem("%s: %s", s.ID.Resource, p)
		}
	}
	r.report.Failed = r.sink.failed
	return r.report, nil
}

// maxProblems bounds what is reported.
const maxProblems = 20

func (r *runner) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.report.Problems) < maxProblems {
		r.report.Problems = append(r.report.Problems, fmt.Sprintf(format, args...))
	}
}
