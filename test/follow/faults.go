package follow

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/test/peer"
)

// faultSource disturbs a stream, and logs the faults.
type faultSource struct {
	t        *testing.T
	server   *peer.Server
	proxy    *faults.Proxy
	follower *Follower
	random   *rand.Rand
	calm     atomic.Bool

	start       time.Time
	kills       []time.Duration // since start, as are restarts
	restarts    []time.Duration
	compactions int
	resource    schema.GroupResource
	counted     int // LIST requests of the resource, by the server's own metrics
	terminated  int // watches that the server ended as too slow, by its own metrics
}

// drawFault gives most watches and some lists a fault, until calm. What is refused is
// soon tried again, so that without weights there would be little else.
func (w *faultSource) drawFault(r *rand.Rand, req faults.Request) faults.Fault {
	storm := faults.Storm()
	switch {
	case w.calm.Load():
		return faults.None
	case req.Class != faults.Watch:
		return faults.OneOf(0.3, 300<<10, storm)(r, req)
	case r.IntN(5) > 0:
		storm[faults.Watch] = inStream
	}
	return faults.OneOf(0.9, 200<<10, storm)(r, req)
}

// inStream are the faults of an open watch.
var inStream = []faults.Fault{
	faults.Event(faults.Expired), faults.Event(faults.Gone), faults.Event(faults.InternalError),
	faults.Event(faults.Unavailable), faults.Event(faults.Timeout),
	faults.End, faults.Cut, faults.Tear, faults.Reset, faults.Garbage, faults.Repeat,
	faults.Stall, faults.HalfOpen,
}

// during does some work while the stream is killed and started again and etcd is
// compacted at random moments.
func (w *faultSource) during(work func() error) {
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

// downtime runs work while no stream follows, compacts the history and restarts the
// server, so that only a list can show the changes.
func (w *faultSource) downtime(work func() error) {
	w.t.Helper()
	w.kill()
	if err := work(); err != nil {
		w.t.Fatalf("churn: %v", err)
	}
	w.compact()
	w.count()
	w.server.Kill()
	if err := w.server.Restart(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.restarts = append(w.restarts, time.Since(w.start))
	w.follower.Start()
}

func (w *faultSource) kill() {
	w.follower.Kill()
	w.kills = append(w.kills, time.Since(w.start))
}

func (w *faultSource) compact() {
	w.t.Helper()
	if _, err := w.server.Compact(w.t.Context()); err != nil && !strings.Contains(err.Error(), "has been compacted") {
		w.t.Fatal(err)
	}
	w.compactions++
}

// count adds the LISTs that the server has answered since its start, and the watches that it has ended as too slow.
// LISTs are pages, without streaming lists. Those that it answered with 429 do not count: a restarted server does so
// until its caches are filled, also for the list of the final state.
func (w *faultSource) count() {
	w.t.Helper()
	metrics, err := w.server.Metrics(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.counted += metrics.Requests("LIST", w.resource.Resource) - metrics.Refused("LIST", w.resource.Resource)
	w.terminated += metrics.Terminated(w.resource.Resource)
}

// faults counts the proxy's faults.
func (w *faultSource) faults() map[string]int {
	counts := map[string]int{}
	for _, e := range w.proxy.Transcript() {
		for _, f := range e.Faults {
			counts[f.Fault]++
		}
	}
	return counts
}
