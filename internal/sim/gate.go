package sim

import (
	"context"
	"sync"
	"time"
)

// gate is where a process stands still while it is paused.
type gate struct {
	mu    sync.Mutex
	until time.Time
}

func (g *gate) close(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = time.Now().Add(d)
}

func (g *gate) pass(ctx context.Context) {
	g.mu.Lock()
	d := time.Until(g.until)
	g.mu.Unlock()
	if d > 0 {
		sleep(ctx, d)
	}
}

// drain is the shutdown of the API server that a client is connected to: what was
// opened before ends in good order, and for a while nobody answers.
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

// ends reports whether what was opened at a time is shut down.
func (d *drain) ends(opened time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return opened.Before(d.began)
}

// refuses reports whether nobody answers.
func (d *drain) refuses(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return now.Before(d.until)
}

// sleep returns false when ctx was done before d was over. What is no more than a
// latency it sleeps out, which costs no timer.
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
