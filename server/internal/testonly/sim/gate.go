package sim

import (
	"context"
	"sync"
	"time"
)

// gate blocks a process while it is paused.
type gate struct {
	mu    sync.Mutex
	until time.Time
}

func (g *gate) pause(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = time.Now().Add(d)
}

func (g *gate) wait(ctx context.Context) {
	g.mu.Lock()
	d := time.Until(g.until)
	g.mu.Unlock()
	if d > 0 {
		sleep(ctx, d)
	}
}

// drain is the shutdown of the API server that a client is connected to. Watches that were
// opened before end regularly, and for a time the server is unavailable.
type drain struct {
	mu           sync.Mutex
	began, until time.Time
}

func (d *drain) begin(takes time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.began = time.Now()
	d.until = d.began.Add(takes)
}

// ends reports whether a watch that was opened at a time is ended.
func (d *drain) ends(opened time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return opened.Before(d.began)
}

// unavailable reports whether no server answers.
func (d *drain) unavailable(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return now.Before(d.until)
}

// sleep reports whether d was over before ctx was done. A sleep of at most latency is not
// interrupted and needs no timer.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= latency {
		time.Sleep(d)
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
