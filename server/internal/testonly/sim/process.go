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
	errTimeout = errors.New("the consumer's timeout")
	errDrain   = errors.New("the schedule is over")
)

// process is the part under test: a store that a reflector keeps equal to a source, through
// restarts.
type process struct {
	name     string
	source   *Source
	settings Settings
	mutant   Mutant

	mu            sync.Mutex
	incarnation   *incarnation
	next          chan struct{}        // closed when the next incarnation begins
	reflector     *reflector.Reflector // the newest
	counts        counts
	restore       restore            // the newest
	restoredBlind bool               // the newest restore was blind
	final         reflector.Progress // before the drain
}

// incarnation is a process between two restarts that lose its store.
type incarnation struct {
	store  *store.Store
	target keepwatch.Target // the store, as the reflector sees it
	ctx    context.Context  // ends with the incarnation, for its consumers
	end    context.CancelCauseFunc
	endRun context.CancelCauseFunc // ends the reflector's Run alone
}

// counts are a process's reports.
type counts struct {
	failures map[keepwatch.FailureKind]int
	relisted time.Time // when the last relist began
	dropped  uint64
	skipped  int // notices of objects that can't be read
	restarts int
	ends     []error // of Runs that ended by themselves
	log      []string
}

// restore is a rewind of the source below a store's revision.
type restore struct {
	to    keepwatch.Revision
	store *store.Store
	epoch uint64 // of the store before it noticed
	late  bool   // an undone revision arrived after it
}

func (r restore) noticed(by *store.Store) bool {
	return r.store != by || r.epoch != by.Snapshot().Cursor().Epoch
}

// run runs the process's incarnations until ctx is done.
func (p *process) run(ctx context.Context) {
	for ctx.Err() == nil {
		l := p.begin(ctx)
		for l.ctx.Err() == nil {
			if !p.runReflector(l) {
				l.end(errRestart)
				sleep(ctx, 10*time.Second) // the platform's restart delay
			}
		}
	}
}

func (p *process) begin(ctx context.Context) *incarnation {
	l := &incarnation{store: store.New(p.settings.Store)}
	l.target = p.mutant.target(l.store)
	l.ctx, l.end = context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.incarnation = l
	close(p.next)
	p.next = make(chan struct{})
	return l
}

// runReflector runs a reflector. It returns true if the process has ended it, and false if it
// has ended by itself.
func (p *process) runReflector(l *incarnation) (asked bool) {
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)
	p.source.begin()
	r := reflector.New(p.mutant.source(p.source), l.target, reflector.Options{
		StartupDeadline: p.settings.Startup, Paged: p.settings.Paged, ProbeAfterOutage: p.settings.Probes,
		Seed: p.settings.Seed, Observe: p.observe,
	})
	p.mu.Lock()
	l.endRun, p.reflector = cancel, r
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
		p.counts.skipped++
		return
	}
	p.counts.failures[n.Failure.Kind]++
	if n.Decision == reflector.Relist {
		p.counts.relisted = n.Time.Add(n.Wait)
	}
	if n.Failure.Kind == keepwatch.ProtocolViolation {
		p.rejected()
	}
	p.counts.log = append(p.counts.log, fmt.Sprintf("%s %s at %d: %v; %s in %v", virtualTime(n.Time), n.State, n.Revision,
		n.Failure, n.Decision, n.Wait))
}

// detections counts the changes that the newest reflector has dropped, and the process's
// protocol violations.
func (p *process) detections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.reflector.Progress().Dropped) + p.counts.failures[keepwatch.ProtocolViolation]
}

// restored records that the source is rewound to a revision. A blind restore may be
// undetectable.
func (p *process) restored(to keepwatch.Revision, blind bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.incarnation.store
	p.restoredBlind = blind
	switch {
	case blind:
		p.restore = restore{}
	case s.Snapshot().Revision() > to:
		p.restore = restore{to, s, s.Snapshot().Cursor().Epoch, false}
	}
}

// lateRevision records that an undone revision is about to reach the store.
func (p *process) lateRevision(to keepwatch.Revision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.incarnation.store; !p.restoredBlind {
		p.restore = restore{to, s, s.Snapshot().Cursor().Epoch, true}
	}
}

// rejected records that the store rejected a delivery. An undone revision that arrived late
// has not reached it then. p.mu is held.
func (p *process) rejected() {
	if p.restore.late && p.restore.store.Snapshot().Revision() <= p.restore.to {
		p.restore = restore{}
	}
}

// restart ends the incarnation or, with keepStore, only the reflector; its target stays.
func (p *process) restart(keepStore bool) {
	p.mu.Lock()
	l := p.incarnation
	end := l.end
	if keepStore {
		end = l.endRun
	}
	p.mu.Unlock()
	if end != nil {
		end(errRestart)
	}
}

// connect waits for the process's incarnation and returns it, nil when ctx is done.
func (p *process) connect(ctx context.Context) *incarnation {
	for {
		p.mu.Lock()
		l, born := p.incarnation, p.next
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

// conclude records the reflector's final progress.
func (p *process) conclude() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.final = p.reflector.Progress()
}
