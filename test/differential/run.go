package differential

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/test/peer"
)

const (
	// concurrency is how many requests are under way. Most of them are watches that
	// wait for their end.
	concurrency = 128
	rounds      = 4
	// changes is how many writes each resource gets between two phases.
	changes = 25
)

// Plan describes a world.
type Plan struct {
	Etcd   *peer.EtcdServer
	Theirs *peer.Server
	// Ours starts the other server, when the world has a past.
	Ours       func() Server
	Comparison *Comparison
	Seed       uint64
	// Samples are objects of further kinds. With samples, requests are for all resources that theirs
	// serves, by several users, and etcd has objects that an older kube-apiserver stored. Both servers
	// must serve them: it is for keepwatch-apiserver.
	Samples []Sample
}

// Build makes a world on etcd: first objects and a past that theirs alone has
// followed, then ours is started and follows too.
func Build(ctx context.Context, p Plan) (*World, error) {
	theirs := p.Theirs
	w := &World{
		endpoint: p.Etcd.Endpoint, comparison: p.Comparison, written: written,
		random: rand.New(rand.NewPCG(p.Seed, 1)), alive: map[string]bool{},
	}
	var err error
	if w.etcd, err = p.Etcd.Client(); err != nil {
		return nil, err
	}
	recording, cancel := context.WithCancel(ctx)
	w.history, w.forget = record(recording, w.etcd), cancel
	if w.theirs, err = w.join(ctx, "theirs", theirs); err != nil {
		return w, err
	}
	if err := define(ctx, theirs.Config()); err != nil {
		return w, err
	}
	if err := w.follows(ctx, w.theirs); err != nil {
		return w, err
	}
	if len(p.Samples) > 0 {
		if err := w.addKinds(p.Samples); err != nil {
			return w, err
		}
	}
	if err := w.Fill(ctx); err != nil {
		return w, err
	}
	if len(w.kinds) > 0 {
		if err := permit(ctx, theirs.Config()); err != nil {
			return w, err
		}
		if err := w.theirs.permitted(ctx); err != nil {
			return w, err
		}
	}
	if err := w.Change(ctx, changes/5); err != nil {
		return w, err
	}
	if w.ours, err = w.join(ctx, "ours", p.Ours()); err != nil {
		return w, err
	}
	if err := w.follows(ctx, w.ours); err != nil {
		return w, err
	}
	if err := w.Settle(ctx); err != nil {
		return w, err
	}
	w.origin = w.revision
	return w, w.Change(ctx, changes)
}

// join connects to a server, for requests and for writes.
func (w *World) join(ctx context.Context, name string, server Server) (*Side, error) {
	side, err := NewSide(name, server)
	if err != nil {
		return nil, err
	}
	config := server.Config()
	config.WarningHandler = rest.NoWarnings{} // of fields that are pruned
	writer, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	w.writers = append(w.writers, writer)
	return side, nil
}

// follows waits until a server serves every resource to every user.
func (w *World) follows(ctx context.Context, side *Side) error {
	if len(w.kinds) > 0 {
		if err := side.permitted(ctx); err != nil {
			return fmt.Errorf("%s does not know the roles: %w", side.Name, err)
		}
	}
	for _, r := range []resource{widgetResource, olderWidgetResource, gadgetResource} {
		if err := side.serves(ctx, r); err != nil {
			return fmt.Errorf("%s does not serve %s: %w", side.Name, r.name, err)
		}
	}
	return nil
}

// Close ends the world's connections.
func (w *World) Close() {
	for _, side := range []*Side{w.theirs, w.ours} {
		if side != nil {
			side.Close()
		}
	}
	if w.history != nil {
		w.forget()
		<-w.history.done
	}
	w.etcd.Close()
}

// Run sends n requests, in rounds between which the world changes, and reports the
// differences.
func Run(ctx context.Context, w *World, n int, seed uint64, report *Report, logf func(string, ...any)) error {
	g := &Generator{world: w, random: rand.New(rand.NewPCG(seed, 2))}
	change := func(ctx context.Context) error { return w.live(ctx, g, report) }
	unchanged := func(context.Context) error { return nil }
	for round, steps := range [][]func(context.Context) error{
		{unchanged}, {change}, {w.Compact, change}, {w.Restart, change},
	} {
		begin := time.Now()
		for _, step := range append(steps, w.Settle, g.tokens) {
			if err := step(ctx); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		requests := g.Draw(n / rounds)
		logf("round %d: changes took %.1f s", round, time.Since(begin).Seconds())
		begin = time.Now()
		if err := w.ask(ctx, requests, report); err != nil {
			return err
		}
		logf("round %d: %d requests at revision %d took %.1f s", round, len(requests), w.revision,
			time.Since(begin).Seconds())
	}
	return nil
}

// ask sends requests to both servers. If there was a write in the meantime, which API
// servers make by themselves now and then, it sends those with differences again.
func (w *World) ask(ctx context.Context, requests []Request, report *Report) error {
	for {
		exchanges := make([]Exchange, len(requests))
		group, all := errgroup.WithContext(ctx)
		group.SetLimit(concurrency)
		for i, r := range requests {
			group.Go(func() (err error) {
				exchanges[i], err = w.exchange(all, r)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		now, err := w.now(ctx)
		if err != nil {
			return err
		}
		requests = nil
		for _, e := range exchanges {
			if now != w.revision && len(w.comparison.Compare(e.Request, e.Theirs, e.Ours)) > 0 {
				requests = append(requests, e.Request)
			} else {
				report.Add(e)
			}
		}
		if len(requests) == 0 {
			return nil
		}
		if err := w.Settle(ctx); err != nil {
			return err
		}
	}
}

// exchange sends a request to both servers. It sends the request again, with more time, if
// one of two streams ended too early. The history judges ours if theirs has no history any
// more.
func (w *World) exchange(ctx context.Context, r Request) (Exchange, error) {
	e := Exchange{Request: r, World: w.state()}
	e.Theirs, e.Ours = w.both(ctx, r)
	if w.unfinished(e) {
		e.Request = r.longer()
		e.Theirs, e.Ours = w.both(ctx, e.Request)
	}
	e.Judged = w.judge(e)
	if len(e.Judged) > 0 && e.Ours.Streamed { // it may have been out of time, too
		e.Request = r.longer()
		e.Theirs, e.Ours = w.both(ctx, e.Request)
		e.Judged = w.judge(e)
	}
	return e, ctx.Err()
}

// judge returns the differences between ours and the history, if theirs has no history any
// more.
func (w *World) judge(e Exchange) []Difference {
	if !e.Theirs.expired() || e.Ours.expired() || e.Ours.Status != http.StatusOK {
		return nil
	}
	return w.history.contradicts(e.Request, e.Ours, w.revision)
}

func (w *World) state() WorldState {
	return WorldState{Origin: w.origin, Compacted: w.compacted, Revision: w.revision}
}

func (w *World) both(ctx context.Context, r Request) (theirs, ours Answer) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		theirs = w.theirs.Ask(ctx, r)
	}()
	ours = w.ours.Ask(ctx, r)
	<-done
	return theirs, ours
}

// unfinished reports whether the time of one of two streams was over too early, on a busy
// machine: it is a beginning of the other, or it reports so.
func (w *World) unfinished(e Exchange) bool {
	if !e.Theirs.Streamed || !e.Ours.Streamed || e.Theirs.expired() || e.Ours.expired() ||
		e.Request.revision() > e.World.Revision {
		return false
	}
	return slices.ContainsFunc(w.comparison.Compare(e.Request, e.Theirs, e.Ours), func(d Difference) bool {
		const late = "context deadline exceeded"
		return strings.HasPrefix(d.Where, missing) || strings.HasPrefix(d.Where, surplus) ||
			strings.Contains(d.Theirs, late) || strings.Contains(d.Ours, late)
	})
}
