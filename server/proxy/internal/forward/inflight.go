package forward

import (
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"
)

const (
	// mostRequests bounds the forwarded requests of one flow that are not streams. kube-apiserver serves or queues fewer
	// of one user, except of its administrators.
	mostRequests = 1000
	// mostStreams bounds the watches and other streams of one flow: an informer for each namespace, of several resources.
	mostStreams = 10_000
)

// inFlight bounds the forwarded requests of each flow: each occupies a connection or a part of one, and buffers. It is
// safe for concurrent use.
type inFlight struct {
	mostRequests, mostStreams int
	open                      *metrics.GaugeVec
	refused                   *metrics.CounterVec

	mu    sync.Mutex
	flows map[flowOf]int
}

// flowOf is a flow, and which of its requests are meant.
type flowOf struct {
	flow   string
	stream bool
}

func newInFlight(registry metrics.KubeRegistry) *inFlight {
	f := &inFlight{
		mostRequests: mostRequests, mostStreams: mostStreams, flows: map[flowOf]int{},
		open: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "keepwatch_proxy_forwarded_in_flight", StabilityLevel: metrics.ALPHA,
			Help: "Forwarded requests that have not ended, by kind: request, or stream for watches, logs and the like.",
		}, []string{"kind"}),
		refused: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "keepwatch_proxy_forwarded_refused_total", StabilityLevel: metrics.ALPHA,
			Help: "Requests that were answered 429 because too many of their user were being forwarded, by kind.",
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

// begin counts a request. It reports false if its flow has too many already. The caller calls end otherwise.
func (f *inFlight) begin(o flowOf) bool {
	most := f.mostRequests
	if o.stream {
		most = f.mostStreams
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flows[o] >= most {
		f.refused.WithLabelValues(o.kind()).Inc()
		return false
	}
	f.flows[o]++
	f.open.WithLabelValues(o.kind()).Inc()
	return true
}

func (f *inFlight) end(o flowOf) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open.WithLabelValues(o.kind()).Dec()
	if f.flows[o]--; f.flows[o] == 0 {
		delete(f.flows, o)
	}
}

// refuse answers 429, which client-go repeats.
func (f *inFlight) refuse(w http.ResponseWriter, q *http.Request) {
	Refuse(w, q, apierrors.NewTooManyRequests("too many requests of this user are being forwarded", 1))
}
