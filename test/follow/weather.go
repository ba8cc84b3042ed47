package follow

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/test/faultproxy"
	"github.com/keepwatch/keepwatch/test/peer"
)

// weather is what happens to a stream, and its log.
type weather struct {
	t        *testing.T
	server   *peer.Server
	proxy    *faultproxy.Proxy
	follower *Follower
	random   *rand.Rand
	calm     atomic.Bool

	start       time.Time
	kills       []time.Duration // since start, as are restarts
	restarts    []time.Duration
	compactions int
}

// fate gives most watches and lists a fault, until calm.
func (w *weather) fate(r *rand.Rand, req faultproxy.Request) faultproxy.Fault {
	if w.calm.Load() {
		return faultproxy.None
	}
	faults := faultproxy.Storm()
	faults[faultproxy.Watch] = append(faults[faultproxy.Watch], faultproxy.Stall, faultproxy.Freeze)
	return faultproxy.OneOf(0.8, 400<<10, faults)(r, req)
}

// blow does some work while the stream is killed and started again and etcd is
// compacted at random moments.
func (w *weather) blow(work func() error) {
	w.t.Helper()
	done := make(chan error, 1)
	go func() { done <- work() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				w.t.Fatalf("churn: %v", err)
			}
			return
		case <-time.After(time.Duration(500+w.random.IntN(5000)) * time.Millisecond):
			w.kill()
		}
		if w.random.IntN(3) == 0 {
			w.compact()
		}
		w.follower.Start()
	}
}

// downtime does some work while nobody follows, compacts the history and
// restarts the server, so that only a list can tell what happened.
func (w *weather) downtime(work func() error) {
	w.t.Helper()
	w.kill()
	if err := work(); err != nil {
		w.t.Fatalf("churn: %v", err)
	}
	w.compact()
	w.server.Kill()
	if err := w.server.Restart(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.restarts = append(w.restarts, time.Since(w.start))
	w.follower.Start()
}

func (w *weather) kill() {
	w.follower.Kill()
	w.kills = append(w.kills, time.Since(w.start))
}

func (w *weather) compact() {
	w.t.Helper()
	if _, err := w.server.Compact(w.t.Context()); err != nil && !strings.Contains(err.Error(), "has been compacted") {
		w.t.Fatal(err)
	}
	w.compactions++
}

// faults counts what the proxy did.
func (w *weather) faults() map[string]int {
	counts := map[string]int{}
	for _, e := range w.proxy.Transcript() {
		for _, f := range e.Faults {
			name, _, _ := strings.Cut(f.Fault.String(), " after")
			counts[name]++
		}
	}
	return counts
}
