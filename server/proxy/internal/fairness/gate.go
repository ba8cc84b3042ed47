package fairness

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	seats "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// DefaultSeats is the number of seats that kube-apiserver shares out by default: the sum of its
// --max-requests-inflight and --max-mutating-requests-inflight.
const DefaultSeats = 600

// Gate admits requests to memory. It admits all until Run has the configuration, and after its end. It is safe for
// concurrent use.
type Gate struct {
	client  kubernetes.Interface
	seats   int
	timeout time.Duration
	objects func(*http.Request) (storage.Stats, error)
	filter  atomic.Pointer[http.Handler] // while Run runs
}

// New returns a gate with a number of seats. A request may wait for them for a quarter of timeout, as in
// kube-apiserver. objects returns at how many objects memory looks to answer a list or to begin a watch, or
// seats.ObjectCountNotFoundErr. A gate without seats admits everybody.
func New(client kubernetes.Interface, seats int, timeout time.Duration,
	objects func(*http.Request) (storage.Stats, error)) *Gate {
	return &Gate{client: client, seats: seats, timeout: timeout, objects: objects}
}

// Run follows the configuration until ctx ends.
func (g *Gate) Run(ctx context.Context) {
	if g.seats <= 0 {
		return
	}
	configured := newConfiguration(g.client)
	controller := flowcontrol.New(configured, readOnly{g.client.FlowcontrolV1()}, g.seats)
	estimate := g.estimate(controller.GetMaxSeats)
	filter := filters.WithPriorityAndFairness(http.HandlerFunc(occupy), nil, controller, estimate, g.timeout/4)
	configured.StartWithContext(ctx)
	defer configured.Shutdown()
	// before, there is one level for all, in which nobody waits
	configured.WaitForCacheSync(ctx.Done())
	g.filter.Store(&filter)
	defer g.filter.Store(nil)
	if err := controller.Run(ctx.Done()); err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "The default flow schemas are used")
		<-ctx.Done()
	}
}

// estimate returns how many seats a request occupies, as kube-apiserver, but by the objects of the request itself in
// place of all of its resource. They are those of its page if it has one: kube-apiserver's own rule would apply a limit
// also to watches and to lists from revision 0, which ignore it. It also has one object for a list by metadata.name,
// although one over all namespaces looks at all objects.
func (g *Gate) estimate(most func(level string) uint64) seats.WorkEstimatorFunc {
	config := seats.DefaultWorkEstimatorConfig()
	return func(q *http.Request, schema, level string) seats.WorkEstimate {
		objects := func(string) (storage.Stats, error) { return g.objects(q) }
		watchers := func(*request.RequestInfo) int { return 0 } // of writes
		return seats.NewWorkEstimator(objects, watchers, config, most)(plain(q), schema, level)
	}
}

// plain returns a request without its limit and name.
func plain(q *http.Request) *http.Request {
	if values := q.URL.Query(); values.Has("limit") {
		values.Del("limit")
		unlimited := *q.URL
		unlimited.RawQuery = values.Encode()
		q = q.WithContext(q.Context())
		q.URL = &unlimited
	}
	if info, ok := request.RequestInfoFrom(q.Context()); ok && info.Name != "" {
		unnamed := *info
		unnamed.Name = ""
		q = q.WithContext(request.WithRequestInfo(q.Context(), &unnamed))
	}
	return q
}

// Serve calls next when the request is admitted. Otherwise it answers 429 with Retry-After, as kube-apiserver. The
// context of the request has its user and its RequestInfo.
func (g *Gate) Serve(next http.Handler, w http.ResponseWriter, q *http.Request) {
	filter := g.filter.Load()
	if filter == nil {
		next.ServeHTTP(w, q)
		return
	}
	o := &occupation{begun: make(chan struct{}), ended: make(chan struct{})}
	ctx, cancel := context.WithTimeout(q.Context(), g.timeout) // a watch has another one, of an hour
	defer cancel()
	filtered := make(chan struct{})
	var panicked any
	go func() {
		defer close(filtered)
		defer func() { panicked = recover() }()
		(*filter).ServeHTTP(w, q.WithContext(context.WithValue(ctx, occupationKey{}, o)))
	}()
	defer func() {
		o.Signal()
		<-filtered
		if panicked != nil {
			panic(panicked)
		}
	}()
	select {
	case <-o.begun:
		next.ServeHTTP(o.response(w), q.WithContext(flowcontrol.WithInitializationSignal(q.Context(), o)))
	case <-filtered: // the filter has answered
	}
}
