package readpath

import (
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/routine"
	"k8s.io/apiserver/pkg/warning"
)

// Lookup finds the reader of what a request is for, or nil if the API server should
// answer. It is called for every read, from any goroutine.
type Lookup func(*http.Request, *request.RequestInfo) *Reader

// Handler answers reads, and passes on what it can't answer exactly. It is safe for
// concurrent use.
type Handler struct {
	next       http.Handler
	lookup     Lookup
	counts     *counts
	minTimeout time.Duration
}

// NewHandler makes a handler in front of next, for readers that share a budget. A watch without a
// timeout of its own lasts for minTimeout up to twice that, as kube-apiserver's
// --min-request-timeout says; zero is half an hour.
func NewHandler(next http.Handler, lookup Lookup, budget *Budget, minTimeout time.Duration) *Handler {
	if minTimeout <= 0 {
		minTimeout = 30 * time.Minute
	}
	return &Handler{next: next, lookup: lookup, counts: budget.counts, minTimeout: minTimeout}
}

// ServeHTTP answers a request, or passes it on.
func (h *Handler) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method == http.MethodGet {
		boundWrites(q.Context())
	}
	info, ok := request.RequestInfoFrom(q.Context())
	if !ok || q.Method != http.MethodGet || !info.IsResourceRequest || info.Subresource != "" {
		h.pass(w, q, passVerb)
		return
	}
	reader := h.lookup(q, info)
	answer, why := h.answer(reader, q, info)
	if why != "" {
		h.pass(w, q, why)
		return
	}
	h.counts.answered.WithLabelValues(info.Verb).Inc()
	if reader.Warning != "" {
		warning.AddWarning(q.Context(), "", reader.Warning)
	}
	counted := metrics.InstrumentHandlerFunc(verb(info), info.APIGroup, info.APIVersion, info.Resource, "", metrics.CleanScope(info),
		metrics.APIServerComponent, reader.Warning != "", "", answer)
	if info.Verb == "watch" {
		long(counted, w, q)
		return
	}
	counted(w, q)
}

// verb is what kube-apiserver's metrics call it.
func verb(info *request.RequestInfo) string {
	switch info.Verb {
	case "list":
		return "LIST"
	case "watch":
		return "WATCH"
	}
	return "GET"
}

func (h *Handler) pass(w http.ResponseWriter, q *http.Request, why reason) {
	h.counts.passed.WithLabelValues(string(why)).Inc()
	if routine.TaskFrom(q.Context()) != nil { // the library would count a watch before it is served, with no status
		q = q.WithContext(routine.WithTask(q.Context(), nil))
	}
	h.next.ServeHTTP(w, q)
}

// answer finds the answer, or the reason why it is not found here.
func (h *Handler) answer(reader *Reader, q *http.Request, info *request.RequestInfo) (http.HandlerFunc, reason) {
	if reader == nil {
		return nil, passResource
	}
	asked, why := reader.read(q, info)
	if why != "" {
		return nil, why
	}
	switch info.Verb {
	case "get":
		return reader.get(q, asked)
	case "list":
		return reader.list(q, asked)
	}
	if asked.timeout == 0 { // less than that is over at once
		asked.timeout = h.minTimeout + rand.N(h.minTimeout)
	}
	return reader.watch(q, asked)
}

// long serves a watch where its stack is small, and counts it: among those that run, and when it
// has ended with its status.
func long(watch http.HandlerFunc, w http.ResponseWriter, q *http.Request) {
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
