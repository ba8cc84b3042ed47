package operators

import (
	"encoding/json"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
)

// pastReads answers reads that may be old from a server with an earlier state, as an API server does whose watch cache
// is behind. By the API's semantics these are lists and gets at resourceVersion 0, and watches.
type pastReads struct {
	proxy    http.Handler
	stop     func() error
	revision keepwatch.Revision
}

func newPastReads(config *rest.Config, stop func() error, revision keepwatch.Revision) (*pastReads, error) {
	proxy, err := proxyTo(config)
	return &pastReads{proxy, stop, revision}, err
}

// proxyTo returns a handler that sends requests to a server, as the user of a configuration.
func proxyTo(config *rest.Config) (*httputil.ReverseProxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}

// pastFor returns the handler of a read that is answered from the past, or nil.
func (t *traffic) pastFor(q *http.Request) http.Handler {
	t.mu.Lock()
	past := t.past
	t.mu.Unlock()
	query := q.URL.Query()
	switch {
	case past == nil:
		return nil
	case query.Get("sendInitialEvents") == "true":
		return http.HandlerFunc(refuseInitialEvents)
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		if from, err := strconv.ParseInt(query.Get("resourceVersion"), 10, 64); err == nil && from > int64(past.revision) {
			return http.HandlerFunc(watchAhead)
		}
		return past.proxy
	case query.Get("resourceVersion") == "0":
		return past.proxy
	}
	return nil
}

// watchAhead is a watch from a revision that the watch cache has not reached: it begins, and has no events yet.
func watchAhead(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).Flush() // a client that is gone needs no answer
	<-q.Context().Done()
}

// refuseInitialEvents answers as servers do that do not stream lists. Clients list instead.
func refuseInitialEvents(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnprocessableEntity)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
	})
}

// travel makes reads that may be old be answered from the past. The operator may have decided by them before.
func (t *traffic) travel(past *pastReads, decided bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.past, t.decided = past, decided
	clear(t.again)
}

// decides records that the operator asks for the newest objects of a type, or writes to an object, while its other
// reads are old.
func (t *traffic) decides(is func(of Place) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decided = t.decided || t.past != nil && is(t.fault.place)
}

func (t *traffic) hasDecided() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.decided
}

// manyRepeats is the number of times that an operator does the same before more of it does not count.
const manyRepeats = 30

// repeats reports whether the operator does the same again and again by old reads, or without late events: the server
// refuses a write of an old object, or collects a child whose owner is gone. It cannot become quiet before it knows.
func (t *traffic) repeats() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.again {
		if n >= manyRepeats {
			return true
		}
	}
	return false
}

// isPast reports whether reads are answered from the past.
func (t *traffic) isPast() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.past != nil
}

// catchUp ends the past: watches of it break, and resume at the newest state.
func (t *traffic) catchUp() error {
	t.mu.Lock()
	past := t.past
	t.past = nil
	t.mu.Unlock()
	if past == nil {
		return nil
	}
	t.cut(func(w *openWatch) bool { return w.ofPast })
	return past.stop()
}
