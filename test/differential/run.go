package differential

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/test/peer"
)

const (
	// concurrency is how many requests are under way. Most of them are watches that
	// wait for their end.
	concurrency = 64
	// phases is how often the world changes, and requests are drawn anew.
	rounds = 4
	// changes is how many writes each resource gets between two phases.
	changes = 25
)

// Build makes a world on etcd: first objects and a past that theirs alone has
// followed, then ours is started and follows too.
func Build(ctx context.Context, etcd *peer.EtcdServer, theirs *peer.Server, start func() *peer.Server, seed uint64) (*World, error) {
	w := &World{endpoint: etcd.Endpoint, random: rand.New(rand.NewPCG(seed, 1)), alive: map[string]bool{}}
	var err error
	if w.etcd, err = etcd.Client(); err != nil {
		return nil, err
	}
	if w.theirs, err = w.join(ctx, "kube-apiserver", theirs); err != nil {
		return w, err
	}
	if err := define(ctx, theirs.Config()); err != nil {
		return w, err
	}
	if err := w.follows(ctx, w.theirs); err != nil {
		return w, err
	}
	if err := w.Fill(ctx); err != nil {
		return w, err
	}
	if err := w.Change(ctx, changes/5); err != nil {
		return w, err
	}
	if w.ours, err = w.join(ctx, "keepwatch serve", start()); err != nil {
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
func (w *World) join(ctx context.Context, name string, server *peer.Server) (*Side, error) {
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

// follows waits until a server serves every resource.
func (w *World) follows(ctx context.Context, side *Side) error {
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
	if w.etcd != nil {
		w.etcd.Close()
	}
}

// Run asks n requests, in phases between which the world changes, and reports the
// differences.
func Run(ctx context.Context, w *World, n int, seed uint64, report *Report) error {
	g := &Generator{world: w, random: rand.New(rand.NewPCG(seed, 2))}
	for round := range rounds {
		if round == 2 {
			if err := w.Compact(ctx); err != nil {
				return err
			}
		}
		if round > 0 {
			if err := w.live(ctx, g, report); err != nil {
				return err
			}
		}
		if err := w.Settle(ctx); err != nil {
			return err
		}
		if err := g.tokens(ctx, w.theirs); err != nil {
			return err
		}
		if err := w.ask(ctx, g.Draw(n/rounds), report); err != nil {
			return err
		}
	}
	return nil
}

// ask sends requests to both servers.
func (w *World) ask(ctx context.Context, requests []Request, report *Report) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for _, r := range requests {
		group.Go(func() error {
			e, err := w.exchange(ctx, r)
			if err == nil {
				report.Add(e)
			}
			return err
		})
	}
	return group.Wait()
}

// exchange asks both servers. They are asked again, with more time, if one of two
// watches ended before it was through, and when somebody wrote in the meantime,
// which API servers do by themselves now and then.
func (w *World) exchange(ctx context.Context, r Request) (Exchange, error) {
	moment := Moment{Origin: w.origin, Compacted: w.compacted, Revision: w.revision}
	for attempt := 0; ; attempt++ {
		e := Exchange{Request: r, World: moment}
		e.Theirs, e.Ours = w.both(ctx, r)
		if ctx.Err() != nil {
			return e, ctx.Err()
		}
		if len(Compare(e.Request, e.Theirs, e.Ours)) == 0 || attempt == 2 {
			return e, nil
		}
		now, err := w.now(ctx)
		if err != nil {
			return e, err
		}
		switch {
		case now != w.revision:
			return e, fmt.Errorf("somebody wrote: etcd is at %d, it was at %d", now, w.revision)
		case unfinished(e):
			r = r.longer()
		default:
			return e, nil
		}
	}
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

// unfinished says whether one of two streams is the beginning of the other: its
// time may have been up.
func unfinished(e Exchange) bool {
	if !e.Theirs.Streamed || !e.Ours.Streamed || e.Request.Options.Get("timeoutSeconds") == "15" {
		return false
	}
	for _, d := range Compare(e.Request, e.Theirs, e.Ours) {
		if strings.HasPrefix(d.Where, "events: without the last") || strings.HasPrefix(d.Where, "events: more than theirs") {
			return true
		}
	}
	return false
}
