package forward

import (
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"
)

const (
	// mostRequests bounds the forwarded requests that are not streams. kube-apiserver executes 600 at a time by default,
	// and queues some thousands.
	mostRequests = 10_000
	// mostStreams bounds the watches and other streams. An agent on each of 5,000 nodes has several.
	mostStreams = 100_000
)

// inFlight bounds the forwarded requests: each occupies a connection or a part of one, and buffers. All flows of an
// owner may have no more than are then left free: alone half, beside another owner with half a quarter, and so on. What
// an owner may still have is shared by its flows in the same way: one that is alone may have a third of all. So who
// makes up flows takes a part from everybody and not all, and one of them leaves a part to the others of its owner. It
// is safe for concurrent use.
type inFlight struct {
	mostRequests, mostStreams int
	open                      *metrics.GaugeVec
	refused                   *metrics.CounterVec

	mu    sync.Mutex
	flows map[flowOf]int // also of an owner, as the flow without a name, and of all, without an owner
}

// flowOf is a flow, and which of its requests are meant.
type flowOf struct {
	share
	stream bool
}

// ofOwner are all flows of the owner, and ofAll those of all. No flow and no owner has an empty name.
func (o flowOf) ofOwner() flowOf { return flowOf{share{o.owner, ""}, o.stream} }
func (o flowOf) ofAll() flowOf   { return flowOf{share{}, o.stream} }

func newInFlight(registry metrics.KubeRegistry) *inFlight {
	f := &inFlight{
		mostRequests: mostRequests, mostStreams: mostStreams, flows: map[flowOf]int{},
		open: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "keepwatch_proxy_forwarded_in_flight", StabilityLevel: metrics.ALPHA,
			Help: "Forwarded requests that have not ended, by kind: request, or stream for watches, logs and the like.",
		}, []string{"kind"}),
		refused: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "keepwatch_proxy_forwarded_refused_total", StabilityLevel: metrics.ALPHA,
			Help: "Requests that were answered 429 because too many were being forwarded, most of them of the same user, by kind.",
		}, []string{"kind"}),
	}
	registry.MustRegister(f.open, f.refused)
	return f
}

func (o flowOf) kind() string {
	if o.stream {
		return "stream"
	}
	return "request"
}

// begin counts a request. It reports false if there are too many, for its flow. The caller calls end otherwise.
func (f *inFlight) begin(o flowOf) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.admits(o) {
		f.refused.WithLabelValues(o.kind()).Inc()
		return false
	}
	f.count(o, 1)
	return true
}

func (f *inFlight) end(o flowOf) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count(o, -1)
}

// move counts a request that has begun in another flow. It reports false, and leaves the request where it is, if that
// flow has too many.
func (f *inFlight) move(from, to flowOf) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count(from, -1)
	if !f.admits(to) {
		f.count(from, 1)
		f.refused.WithLabelValues(to.kind()).Inc()
		return false
	}
	f.count(to, 1)
	return true
}

// admits reports whether a flow may have one more request. f.mu is locked.
func (f *inFlight) admits(o flowOf) bool {
	most := f.mostRequests
	if o.stream {
		most = f.mostStreams
	}
	own, owned, free := f.flows[o], f.flows[o.ofOwner()], most-f.flows[o.ofAll()]
	switch {
	case owned == 0:
		return free > 0
	case own == 0:
		return owned+1 < free
	}
	return own+1 < free-owned
}

// count adds to the requests of a flow. f.mu is locked.
func (f *inFlight) count(o flowOf, n int) {
	f.open.WithLabelValues(o.kind()).Add(float64(n))
	for _, o := range []flowOf{o, o.ofOwner(), o.ofAll()} {
		if f.flows[o] += n; f.flows[o] == 0 {
			delete(f.flows, o)
		}
	}
}

// refuseMore answers 429, which client-go repeats.
func refuseMore(w http.ResponseWriter, q *http.Request) {
	Refuse(w, q, apierrors.NewTooManyRequests("too many requests of this user are being forwarded", 1))
}
