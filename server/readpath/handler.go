package readpath

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/routine"
	"k8s.io/apiserver/pkg/warning"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// Lookup returns the reader of the resource that a request names, or nil if the API server should
// answer. Any goroutine calls it, for every read.
type Lookup func(*http.Request, *request.RequestInfo) *Reader

// Handler answers reads, and delegates requests that it can't answer exactly. It is safe for
// concurrent use.
type Handler struct {
	next       http.Handler
	lookup     Lookup
	counts     *counts
	minTimeout time.Duration
	filter     func(http.Handler) http.Handler // may be nil
}

// NewHandler returns a handler that delegates to next. Its readers share a budget. A watch without a
// timeout lasts from minTimeout up to twice that, as with kube-apiserver's --min-request-timeout. A
// minTimeout of zero means half an hour.
func NewHandler(next http.Handler, lookup Lookup, budget *Budget, minTimeout time.Duration) *Handler {
	if minTimeout <= 0 {
		minTimeout = 30 * time.Minute
	}
	return &Handler{next: next, lookup: lookup, counts: budget.counts, minTimeout: minTimeout}
}

// Filter sets a filter for the answers of the handler, such as that of an audit log; what the handler delegates does
// not pass it. The filter may answer in place of the handler that it receives. Filter is called before the first
// request.
func (h *Handler) Filter(filter func(http.Handler) http.Handler) { h.filter = filter }

// ServeHTTP answers a request or delegates it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	info, ok := request.RequestInfoFrom(q.Context())
	// a watch ends at its context's deadline, which is no error
	if q.Method == http.MethodGet && (!ok || info.Verb != "watch") {
		setWriteDeadline(q.Context())
	}
	if !ok || q.Method != http.MethodGet || !info.IsResourceRequest || info.Subresource != "" {
		h.delegate(w, q, reasonVerb)
		return
	}
	if info.Verb != "watch" && auditsObjects(q.Context()) {
		h.delegate(w, q, reasonAudit)
		return
	}
	reader := h.lookup(q, info)
	response, why := h.response(reader, q, info)
	if why != "" && reader != nil && reader.view != nil {
		reader.refuseInView(w, q, why)
		return
	}
	if why != "" {
		h.delegate(w, q, why)
		return
	}
	h.counts.answered.WithLabelValues(info.Verb).Inc()
	if reader.resource.Warning != "" {
		warning.AddWarning(q.Context(), "", reader.resource.Warning)
	}
	counted := metrics.InstrumentHandlerFunc(metricsVerb(info), info.APIGroup, info.APIVersion, info.Resource, "",
		metrics.CleanScope(info),
		metrics.APIServerComponent, reader.resource.Warning != "", reader.resource.RemovedRelease, response)
	if info.Verb == "watch" {
		response = func(w http.ResponseWriter, q *http.Request) { serveWatch(counted, w, q) }
	} else {
		response = counted
	}
	h.answer(response, w, q)
}

// answer serves a response through the filter. If the filter answers in its place, or panics, the response releases
// what it holds.
func (h *Handler) answer(response http.HandlerFunc, w http.ResponseWriter, q *http.Request) {
	if h.filter == nil {
		response(w, q)
		return
	}
	served := false
	defer func() {
		if !served {
			ctx, cancel := context.WithCancel(q.Context())
			cancel()
			response(nowhere{http.Header{}}, q.WithContext(ctx))
		}
	}()
	h.filter(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		served = true
		response(w, q)
	})).ServeHTTP(w, q)
}

// nowhere fails to write.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header { return n.header }

func (nowhere) WriteHeader(int) {}

func (nowhere) Write([]byte) (int, error) { return 0, http.ErrAbortHandler }

// auditsObjects reports whether the policy puts the objects of a response into the audit log: they would have to be
// decoded, which the API server does where it encodes them.
func auditsObjects(ctx context.Context) bool {
	audited := audit.AuditContextFrom(ctx)
	return audited != nil && audited.GetEventLevel().GreaterOrEqual(auditinternal.LevelRequestResponse)
}

// metricsVerb returns the verb in kube-apiserver's metrics.
func metricsVerb(info *request.RequestInfo) string {
	switch info.Verb {
	case "list":
		return "LIST"
	case "watch":
		return "WATCH"
	}
	return "GET"
}

// delegate serves a request by the API server's handlers.
func (h *Handler) delegate(w http.ResponseWriter, q *http.Request, why reason) {
	h.counts.delegated.WithLabelValues(string(why)).Inc()
	if why == reasonLate {
		q = q.WithContext(watchcache.Waited(q.Context()))
	}
	if routine.TaskFrom(q.Context()) != nil { // the library would count a watch before it is served, with no status
		q = q.WithContext(routine.WithTask(q.Context(), nil))
	}
	h.next.ServeHTTP(w, q)
}

// response returns the response to a request, or the reason to delegate it.
func (h *Handler) response(reader *Reader, q *http.Request, info *request.RequestInfo) (http.HandlerFunc, reason) {
	if reader == nil {
		return nil, reasonResource
	}
	r, why := reader.resource.parse(q, info)
	if why != "" {
		return nil, why
	}
	switch info.Verb {
	case "get":
		return reader.get(q, r)
	case "list":
		return reader.list(q, r)
	}
	if r.timeout == 0 { // a negative one ends at once
		r.timeout = h.minTimeout + rand.N(h.minTimeout)
	}
	return reader.watch(q, r)
}

// serveWatch serves a watch, and counts it while it is open and by its status when it has ended. If the
// chain has the library's routine filter, the watch runs in the connection's goroutine, whose stack is
// small.
func serveWatch(watch http.HandlerFunc, w http.ResponseWriter, q *http.Request) {
	serve := func() {
		info, _ := request.RequestInfoFrom(q.Context())
		metrics.RecordLongRunning(q, info, metrics.APIServerComponent, func() { watch(w, q) })
	}
	if task := routine.TaskFrom(q.Context()); task != nil {
		task.Func = serve
	} else {
		serve()
	}
}
