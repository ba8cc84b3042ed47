package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
)

var (
	errRestart = errors.New("the process restarts")
	errTimeout = errors.New("it took too long")
	errDrain   = errors.New("the schedule is over")
)

// process is what is under test: a store that a reflector keeps equal to a
// source. It lives on through restarts.
type process struct {
	name     string
	source   *Source
	settings Settings
	mutant   Mutant

	mu      sync.Mutex
	life    *life
	born    chan struct{}        // closed when the next life begins
	runs    *reflector.Reflector // the newest
	counts  counts
	restore restore            // the newest
	blind   bool               // it was
	final   reflector.Progress // before the drain
}

// life is a process between two restarts that lose its store.
type life struct {
	store  *store.Store
	target keepwatch.Target // the store, as the reflector sees it
	ctx    context.Context  // ends with the life, for those who are connected
	end    context.CancelCauseFunc
	rerun  context.CancelCauseFunc // ends the reflector's Run alone
}

// counts is what a process has reported.
type counts struct {
	failures map[keepwatch.FailureKind]int
	dropped  uint64
	leftOut  int // notices of what can't be taken
	restarts int
	ends     []error // that Run gave without being asked
	story    []string
}

// restore is the source going back behind what a store holds.
type restore struct {
	to    keepwatch.Revision
	store *store.Store
	epoch uint64 // of the store, before it knew
	late  bool   // what was undone came after it
}

func (r restore) noticed(by *store.Store) bool {
	return r.store != by || r.epoch != by.Snapshot().Cursor().Epoch
}

// run lives the process's lives, until ctx is done.
func (p *process) run(ctx context.Context) {
	for ctx.Err() == nil {
		l := p.begin(ctx)
		for l.ctx.Err() == nil {
			if !p.reflect(l) {
				l.end(errRestart)
				sleep(ctx, 10*time.Second) // and the platform starts it again
			}
		}
	}
}

func (p *process) begin(ctx context.Context) *life {
	l := &life{store: store.New(p.settings.Store)}
	l.target = p.mutant.target(l.store)
	l.ctx, l.end = context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life = l
	close(p.born)
	p.born = make(chan struct{})
	return l
}

// reflect runs a reflector until somebody ends it, or reports false when it
// ended by itself.
func (p *process) reflect(l *life) (asked bool) {
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)
	p.source.begin()
	r := reflector.New(p.mutant.source(p.source), l.target, reflector.Options{
		StartupDeadline: p.settings.Startup, Paged: p.settings.Paged, Seed: p.settings.Seed, Observe: p.observe,
	})
	p.mu.Lock()
	l.rerun, p.runs = cancel, r
	p.mu.Unlock()
	err := protect(func() error { return r.Run(ctx) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.dropped += r.Progress().Dropped
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		p.counts.restarts++
		return true
	}
	p.counts.ends = append(p.counts.ends, err)
	return false
}

// protect turns a panic into an error.
func protect(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}

func (p *process) observe(n reflector.Notice) {
	if n.Failure == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n.Decision == reflector.Skip {
		p.counts.leftOut++
		return
	}
	p.counts.failures[n.Failure.Kind]++
	if n.Failure.Kind == keepwatch.ProtocolViolation {
		p.refused()
	}
	p.counts.story = append(p.counts.story, fmt.Sprintf("%s %s at %d: %v; %s in %v", stamp(n.Time), n.State, n.Revision, n.Failure, n.Decision, n.Wait))
}

// evidence counts what the newest reflector has dropped, and what the process has
// called a violation of the protocol.
func (p *process) evidence() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.runs.Progress().Dropped) + p.counts.failures[keepwatch.ProtocolViolation]
}

// restored says that the source goes back to a revision. In a blind restore there
// may be no way to see it.
func (p *process) restored(to keepwatch.Revision, blind bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.life.store
	p.blind = blind
	switch {
	case blind:
		p.restore = restore{}
	case s.Snapshot().Revision() > to:
		p.restore = restore{to, s, s.Snapshot().Cursor().Epoch, false}
	}
}

// late says that the store is about to get what was undone meanwhile.
func (p *process) late(to keepwatch.Revision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.life.store; !p.blind {
		p.restore = restore{to, s, s.Snapshot().Cursor().Epoch, true}
	}
}

// refused says that the store did not take what it was about to get. What was undone
// and came late has not been there, then. p.mu is held.
func (p *process) refused() {
	if p.restore.late && p.restore.store.Snapshot().Revision() <= p.restore.to {
		p.restore = restore{}
	}
}

// restart ends the life, or with keep only the reflector, whose target remains.
func (p *process) restart(keep bool) {
	p.mu.Lock()
	l := p.life
	end := l.end
	if keep {
		end = l.rerun
	}
	p.mu.Unlock()
	if end != nil {
		end(errRestart)
	}
}

// connect is how a consumer reaches the process's store; nil when ctx is done.
func (p *process) connect(ctx context.Context) *life {
	for {
		p.mu.Lock()
		l, born := p.life, p.born
		p.mu.Unlock()
		if l != nil && l.ctx.Err() == nil {
			return l
		}
		select {
		case <-born:
		case <-ctx.Done():
			return nil
		}
	}
}

// conclude keeps how the reflector is doing.
func (p *process) conclude() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.final = p.runs.Progress()
}
