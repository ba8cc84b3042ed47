package kube

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// protocols of servers; most tests use all of them.
var protocols = []string{"HTTP/1.1", "HTTP/1.1+TLS", "HTTP/2.0"}

// overEach runs test with a server of each protocol, whose handler is answer.
func overEach(t *testing.T, answer http.HandlerFunc, opts Options, test func(t *testing.T, s *Source)) {
	t.Helper()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) { test(t, newSource(t, serve(t, protocol, answer), opts)) })
	}
}

// discardLog is the servers' log: it would have the clients that disconnect.
var discardLog = log.New(io.Discard, "", 0)

// serve starts a server, and returns a client configuration.
func serve(t testing.TB, protocol string, answer http.HandlerFunc) *rest.Config {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if want := strings.TrimSuffix(protocol, "+TLS"); r.Proto != want {
			t.Errorf("request over %s, want %s", r.Proto, want)
		}
		answer(w, r)
	}))
	srv.Config.ErrorLog = discardLog
	cfg := &rest.Config{}
	switch protocol {
	case "HTTP/1.1":
		srv.Start()
	default:
		srv.EnableHTTP2 = protocol == "HTTP/2.0"
		srv.StartTLS()
		cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	}
	t.Cleanup(srv.Close)
	cfg.Host = srv.URL
	return cfg
}

// newSource returns a source, of pods unless opts have another resource.
func newSource(t testing.TB, cfg *rest.Config, opts Options) *Source {
	t.Helper()
	if opts.Resource.Resource == "" {
		opts.Resource = pods
	}
	s, err := New(cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(s.client.Transport) })
	return s
}

// send writes text and flushes it.
func send(w http.ResponseWriter, text ...string) {
	for _, part := range text {
		io.WriteString(w, part)
	}
	w.(http.Flusher).Flush()
}

// abortResponse breaks the connection or its stream.
func abortResponse() { panic(http.ErrAbortHandler) }

// waitClosed waits until the client disconnects.
func waitClosed(r *http.Request) { <-r.Context().Done() }

// pod returns the text of a pod without its type, podFrame an event with one.
func pod(name string, revision int) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"ns","uid":"uid-%s","resourceVersion":"%d"},"spec":{}}`, name,
		name, revision)
}

func podFrame(kind, name string, revision int) string {
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Pod","apiVersion":"v1",%s}`+"\n", kind, pod(name, revision)[1:])
}

func bookmarkFrame(revision int) string {
	return fmt.Sprintf(
		`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d","creationTimestamp":null},"spec":{"containers":null},"status":{}}}`+"\n", revision)
}

func endFrame(revision int) string {
	return fmt.Sprintf(
		`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d","creationTimestamp":null,"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}`+"\n", revision)
}

func podList(revision int, more string, items ...string) string {
	return fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},"items":[%s]}`+"\n",
		revision, more, strings.Join(items, ","))
}

func statusText(code int, reason, message, details string) string {
	return fmt.Sprintf(
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"details":{%s},"code":%d}`,
		message, reason, details, code)
}

// wantFailure checks err's kind, and that its message contains each of parts.
func wantFailure(t *testing.T, err error, kind keepwatch.FailureKind, parts ...string) *keepwatch.Failure {
	t.Helper()
	var failure *keepwatch.Failure
	if !errors.As(err, &failure) {
		t.Fatalf("got error %v, want a failure: %v", err, kind)
	}
	if failure.Kind != kind {
		t.Fatalf("got %v (%v), want %v", failure.Kind, failure, kind)
	}
	for _, part := range parts {
		if !strings.Contains(failure.Error(), part) {
			t.Errorf("message %q does not contain %q", failure, part)
		}
	}
	return failure
}

// describe formats a batch on one line: (5,8] ADDED a@8.
func describe(b keepwatch.Batch) string {
	parts := []string{fmt.Sprintf("(%v,%v]", b.From, b.To)}
	for _, c := range b.Changes {
		parts = append(parts, fmt.Sprintf("%v %s@%v", c.Type, c.Object.Key().Name, c.Revision))
	}
	return strings.Join(parts, " ")
}

// drain reads w to its end.
func drain(w keepwatch.Watch) (batches []keepwatch.Batch, err error) {
	for {
		b, err := w.Next()
		if err != nil {
			return batches, err
		}
		batches = append(batches, b)
	}
}

// wantHistory checks that batches join to one history from from to to, with the
// changes described.
func wantHistory(t *testing.T, batches []keepwatch.Batch, from, to keepwatch.Revision, changes ...string) {
	t.Helper()
	var got []string
	at := from
	for _, b := range batches {
		if b.From != at {
			t.Errorf("batch %s does not begin at %v", describe(b), at)
		}
		at = b.To
		for _, c := range b.Changes {
			got = append(got, fmt.Sprintf("%v %s@%v", c.Type, c.Object.Key().Name, c.Revision))
		}
	}
	if at != to {
		t.Errorf("history ends at %v, want %v", at, to)
	}
	if fmt.Sprint(got) != fmt.Sprint(changes) {
		t.Errorf("history is %v, want %v", got, changes)
	}
}

// requestLog records the requests of a server.
type requestLog struct {
	mu       sync.Mutex
	requests []*http.Request
}

func (l *requestLog) record(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, r.Clone(context.Background()))
}

// drain returns the requests since the last call.
func (l *requestLog) drain() []*http.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	requests := l.requests
	l.requests = nil
	return requests
}
