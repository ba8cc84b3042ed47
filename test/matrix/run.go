package matrix

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
	"github.com/keepwatch/keepwatch/test/peer"
)

const (
	// disturbedStart is how long a client of a named plan may take before the plan's writes begin all the same.
	disturbedStart = 30 * time.Second
	// settleTimeout bounds the time until a client is right again. A connection that is half-open costs some
	// clients a minute.
	settleTimeout = 2 * time.Minute
	pollInterval  = 20 * time.Millisecond
)

// Cell is one client and one plan.
type Cell struct {
	Client string
	View   clients.View
	// Command is the client's program and its first arguments.
	Command []string
	Plan    Plan
	Seed    uint64

	settle time.Duration // in place of settleTimeout, if it is not zero
}

// cell is a cell that runs.
type cell struct {
	Cell
	ctx             context.Context
	server          *Server
	proxy           *faults.Proxy
	begun           time.Time // of the proxy's clock
	writer          *writer
	random          *rand.Rand
	disturbed, over atomic.Bool // the plan has begun, has ended
	client          *clients.Process
	expired         atomic.Uint64 // the history up to this revision

	mu       sync.Mutex
	arrivals []arrival
	fold     fold
	last     bool // the last write has arrived
}

// Run runs a cell on a server, in a namespace of its own, and measures it. The test fails only if the
// cell cannot be measured, for example because the client never had the initial state.
func (want Cell) Run(tb testing.TB, server *Server) Result {
	tb.Helper()
	c := &cell{Cell: want, ctx: tb.Context(), server: server, random: rand.New(rand.NewPCG(want.Seed, 2)), fold: fold{}}
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	namespace := c.namespace()
	var err error
	c.writer, err = newWriter(server.writers, namespace, want.Seed)
	must(err)
	must(c.writer.prepare(c.ctx))
	c.begun = time.Now()
	plan := c.Plan.named
	plan.Seed, plan.Fate = want.Seed, c.fate
	c.proxy = faults.New(tb, server.config, plan)
	c.start(tb, namespace)
	must(c.started())
	c.mu.Lock()
	baseline := baseline{lines: len(c.arrivals), at: time.Now(), fold: maps.Clone(c.fold)}
	c.last = false
	c.mu.Unlock()
	_, baseline.revision, err = server.writes(c.ctx, namespace)
	must(err)
	c.disturbed.Store(true)
	must(c.Plan.story(c))
	c.over.Store(true)
	must(c.writer.last(c.ctx))
	calm := time.Now()
	writes, newest, err := server.writes(c.ctx, namespace)
	must(err)
	outcome, recovery := c.recovered(calm, stateAt(writes, newest))
	c.client.End()
	requests, met := c.requests(baseline.at)
	return c.measure(observed{
		namespace: namespace, baseline: baseline, arrivals: c.arrivals, writes: writes, newest: newest,
		requests: requests, faults: met, outcome: outcome, recovery: recovery,
	})
}

// namespace is a name for the cell's. What a plan draws depends on it: it is the same whenever the cell is repeated
// with its seed.
func (c *cell) namespace() string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\n%s\n%d", c.Client, c.Plan.Name, c.Seed)
	return fmt.Sprintf("cell-%x", h.Sum64())
}

// fate is the plan's, until the plan is over. History that has expired does not come back.
func (c *cell) fate(r *rand.Rand, request faults.Request) faults.Fault {
	if c.isExpired(request) {
		return faults.Event(faults.Expired)
	}
	if c.Plan.fate == nil || !c.disturbed.Load() || c.over.Load() {
		return faults.None
	}
	return c.Plan.fate(r, request)
}

// start starts the client for the duration of the test.
func (c *cell) start(tb testing.TB, namespace string) {
	tb.Helper()
	dir := tb.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := peer.WriteKubeconfig(kubeconfig, c.proxy.Config()); err != nil {
		tb.Fatal(err)
	}
	var err error
	if c.client, err = clients.Start(c.Command, kubeconfig, namespace, dir, c.receive); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		c.client.End()
		if text, err := os.ReadFile(c.client.Log); tb.Failed() && err == nil {
			tb.Logf("%s wrote\n%s", c.Client, text[max(0, len(text)-4<<10):])
		}
	})
}

func (c *cell) receive(line clients.Line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrivals = append(c.arrivals, arrival{line, time.Now()})
	before := c.fold[clients.Last]
	c.fold.apply(line)
	c.last = c.last || c.fold[clients.Last] != before
}

// isNamed reports whether the cell has one of the plans of package faults, which begin before the client.
func (c *cell) isNamed() bool { return len(c.Plan.named.Rules) > 0 }

// started waits until the client has the initial state, and watches. A named plan may hinder it.
func (c *cell) started() error {
	deadline := time.Now().Add(await.Deadline)
	if c.isNamed() {
		deadline = time.Now().Add(disturbedStart)
	}
	for {
		c.mu.Lock()
		got := maps.Clone(c.fold)
		c.mu.Unlock()
		watches := c.proxy.Count(faults.Watch, configMaps) + c.proxy.Count(faults.StreamList, configMaps)
		if watches > 0 && (c.View == clients.Condition || got.hasUIDs(c.writer.uids)) {
			return nil
		}
		failed := time.Now().After(deadline) || c.client.Err() != nil
		if failed && c.isNamed() {
			return nil
		}
		if err := c.client.Err(); err != nil {
			return fmt.Errorf("%s: %w", c.Client, err)
		}
		if failed {
			return fmt.Errorf("%s does not have the initial state after %v: %v", c.Client, await.Deadline, got)
		}
		if err := c.sleep(pollInterval); err != nil {
			return err
		}
	}
}

// recovered waits until the client's state is the server's, or the client ends, or the time is over. It
// returns the time between calm and the line that made the state right.
func (c *cell) recovered(calm time.Time, want fold) (Outcome, time.Duration) {
	for deadline := calm.Add(cmp.Or(c.settle, settleTimeout)); ; {
		ended := c.client.Err() != nil
		c.mu.Lock()
		right, last := c.right(want), c.last
		var at time.Time
		if n := len(c.arrivals); n > 0 {
			at = c.arrivals[n-1].at
		}
		c.mu.Unlock()
		switch {
		case right:
			return Right, max(0, at.Sub(calm))
		case ended:
			return Died, 0
		case time.Now().Before(deadline):
			if c.sleep(pollInterval) == nil {
				continue
			}
			return Hung, 0
		case last:
			return Wrong, 0
		default:
			return Hung, 0
		}
	}
}

// right reports whether the client has what its user waits for.
func (c *cell) right(want fold) bool {
	if c.View == clients.Condition {
		return c.fold[clients.Last] == want[clients.Last]
	}
	return maps.Equal(c.fold, want)
}

// requests are the client's lists and watches since a time, and the number of faults that they, and older watches, have
// met since then.
func (c *cell) requests(since time.Time) (all []faults.Entry, met int) {
	from := since.Sub(c.begun)
	for _, e := range c.proxy.Transcript() {
		if e.Resource != configMaps {
			continue
		}
		if e.Start > from {
			all = append(all, e)
		}
		for _, f := range e.Faults {
			if f.At > from {
				met++
			}
		}
	}
	return all, met
}

// write does a number of writes.
func (c *cell) write(n int) error {
	for range n {
		if err := c.writer.one(c.ctx); err != nil {
			return err
		}
		if err := c.sleep(writePause); err != nil {
			return err
		}
	}
	return nil
}

func (c *cell) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

// baseline is the point from which a cell is measured: the client has the initial state.
type baseline struct {
	lines    int
	at       time.Time
	fold     fold
	revision keepwatch.Revision
}

// observed is what a cell is measured from.
type observed struct {
	namespace string
	baseline  baseline
	arrivals  []arrival
	writes    []check.Write // of the namespace, since it was created
	newest    keepwatch.Revision
	requests  []faults.Entry
	faults    int
	outcome   Outcome
	recovery  time.Duration
}
