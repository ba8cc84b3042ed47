package served

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
	"github.com/keepwatch/keepwatch/test/bench/wire"
)

// restartClients are those that follow pods while a server is restarted: all, or those of a namespace each, in turns.
type restartClients struct{ informers, watchers, namespaces int }

// namespace returns that of client i, or all.
func (c restartClients) namespace(i int) string {
	if c.namespaces == 0 {
		return ""
	}
	return fmt.Sprintf("team-%03d", i%c.namespaces)
}

func (c restartClients) row() string {
	row := fmt.Sprintf("restart with %d informers and %d watchers", c.informers, c.watchers)
	if c.namespaces > 0 {
		row += fmt.Sprintf(" of %d namespaces", c.namespaces)
	}
	return row
}

// rate is the number of updates a second. A client that receives one is live; each namespace has one in two seconds.
func (c restartClients) rate() int { return max(5, c.namespaces/2) }

// What is measured of a restart. Times are since the new process was started.
const (
	restartReady   = "ready"
	liveAgain      = "live again"
	lastLive       = "last live again"
	listsAgain     = "LISTs asked for"
	initialStreams = "initial-event streams asked for"
)

// within is the target for the last of them.
func (c restartClients) within() time.Duration {
	if c.namespaces > 0 {
		return 10 * time.Second
	}
	return 3 * time.Second
}

// restartDeadline is how long they have.
const restartDeadline = 4 * time.Minute

// clients are all clients that follow the server.
type clients struct {
	counts    counts
	informers []*informer
	watchers  []*rawWatcher
	links     []*sharedLink
	running   sync.WaitGroup
}

// measureRestart stops the server, starts it again, and waits until every client has
// received an update that was written after the stop. start returns when the server is ready.
func (s *Server) measureRestart(ctx context.Context, r *Report, w *Writer, of restartClients, stopServer func() error,
	start func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	a := &clients{}
	defer a.stop()
	defer cancel()
	if err := a.start(ctx, s, of); err != nil {
		return err
	}
	r.Progress("%s: %s: all connected", s.by, of.row())
	stop := w.keepWriting(ctx, of.rate())
	defer func() {
		if failed := stop(); err == nil {
			err = failed
		}
	}()
	if err := a.waitLive(ctx, w); err != nil {
		return err
	}
	if err := stopServer(); err != nil {
		return err
	}
	lists, streams := a.counts.lists.Load(), a.counts.streams.Load()
	revision, err := w.revision(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	within, giveUp := context.WithTimeout(ctx, restartDeadline)
	defer giveUp()
	var ready time.Duration
	var group errgroup.Group
	group.Go(func() error {
		err := start(ctx)
		if ready = time.Since(began); err != nil {
			giveUp() // it is killed
		}
		return err
	})
	at := waitAll(within, a.followers(), revision, began)
	figures := append(a.figures(at),
		count(listsAgain, int(a.counts.lists.Load()-lists)), count(initialStreams, int(a.counts.streams.Load()-streams)))
	if err := group.Wait(); err != nil {
		// Clients may have received events although the server never was ready.
		r.Add(s.by, of.row(), figures...)
		return err
	}
	memory, err := s.process().Memory()
	if err != nil {
		return err
	}
	cpu, err := s.process().ProcessorTime()
	if err != nil {
		return err
	}
	r.Add(s.by, of.row(), append(figures, seconds(restartReady, ready), seconds(serverCPU, cpu),
		size("peak RSS", memory.Peak))...)
	return nil
}

// figures are how many have a time, and which.
func (a *clients) figures(at []time.Duration) []Figure {
	live, first, _ := summary(at)
	return []Figure{
		count(liveAgain, live), seconds("first live again", first),
		lastOf("last watcher live again", at[len(a.informers):]), lastOf("last informer live again", at[:len(a.informers)]),
		lastOf(lastLive, at),
	}
}

// lastOf is the last time, unless one is missing.
func lastOf(measure string, at []time.Duration) Figure {
	n, _, last := summary(at)
	if n < len(at) {
		return Figure{measure, figures.Seconds, math.NaN()}
	}
	return seconds(measure, last)
}

// start connects all clients, and waits for the informers' lists.
func (a *clients) start(ctx context.Context, s *Server, of restartClients) error {
	// Each informer uses a core while it lists.
	const atOnce = 4
	for i := range of.informers {
		inf, err := newInformer(s.Config(), of.namespace(i), &a.counts)
		if err != nil {
			return err
		}
		if n := len(a.informers); n >= atOnce {
			if err := a.informers[n-atOnce].waitSynced(ctx); err != nil {
				return err
			}
		}
		a.informers = append(a.informers, inf)
		a.running.Go(func() { inf.run(ctx) })
	}
	for _, inf := range a.informers {
		if err := inf.waitSynced(ctx); err != nil {
			return err
		}
	}
	newest, err := s.newest(ctx)
	if err != nil {
		return err
	}
	for i := range of.watchers {
		if i%wire.Streams == 0 {
			a.links = append(a.links, &sharedLink{subject: &s.subject})
		}
		w := &rawWatcher{shared: a.links[len(a.links)-1], counts: &a.counts, cursor: newest,
			path: podsOf(of.namespace(i))}
		a.watchers = append(a.watchers, w)
		a.running.Go(func() { w.run(ctx) })
	}
	return nil
}

// waitLive waits until every client has received an update that is written after the call.
func (a *clients) waitLive(ctx context.Context, w *Writer) error {
	revision, err := w.revision(ctx)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	at := waitAll(within, a.followers(), revision, time.Now())
	if live, _, _ := summary(at); live < len(at) {
		return fmt.Errorf("only %d of %d followers receive updates before the restart", live, len(at))
	}
	return nil
}

func (a *clients) followers() []follower {
	var all []follower
	for _, inf := range a.informers {
		all = append(all, inf)
	}
	for _, w := range a.watchers {
		all = append(all, w)
	}
	return all
}

// stop waits until all clients have ended. Their context must have ended.
func (a *clients) stop() {
	a.running.Wait()
	for _, t := range a.links {
		t.close()
	}
}

// summary is how many have a time, and the first and the last of these.
func summary(at []time.Duration) (n int, first, last time.Duration) {
	for _, t := range at {
		if t == 0 {
			continue
		}
		if n++; first == 0 || t < first {
			first = t
		}
		last = max(last, t)
	}
	return n, first, last
}
