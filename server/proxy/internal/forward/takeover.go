package forward

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/keepwatch/keepwatch"
)

const (
	// takeoverEvery is the time between two turns in which forwarded watches end, and takeoversAtOnce how many end in one:
	// their clients connect again.
	takeoverEvery, takeoversAtOnce = time.Second, 50
	// youngestTakeover is the age from which on a forwarded watch may end. client-go lists again after a watch that has
	// lasted for less than a second and has delivered nothing.
	youngestTakeover = 5 * time.Second
)

// takeovers ends forwarded watches that memory can continue, as a server ends a watch at its timeout: behind a whole
// event. The client then connects again, at the revision that it has received last. It is safe for concurrent use.
//
// Only watches with bookmarks end: their clients continue at a revision. Others may be of programs that end with their
// connection, as kubectl get -w does.
type takeovers struct {
	every, youngest time.Duration
	total           *metrics.CounterVec

	mu   sync.Mutex
	open map[*forwardedWatch]bool
}

func newTakeovers(registry metrics.KubeRegistry) *takeovers {
	t := &takeovers{every: takeoverEvery, youngest: youngestTakeover, open: map[*forwardedWatch]bool{},
		total: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "keepwatch_proxy_watches_taken_over_total", StabilityLevel: metrics.ALPHA,
			Help: "Forwarded watches that were ended because memory could continue them at the revision that the client had received.",
		}, []string{"group", "version", "resource"})}
	registry.MustRegister(t.total)
	return t
}

// forwardedWatch is a watch that the server answers, until memory can.
type forwardedWatch struct {
	request   *http.Request
	info      *request.RequestInfo
	selective bool
	begun     time.Time
	end       context.CancelFunc // of the request to the server

	mu     sync.Mutex
	frames frameReader
	ended  bool // nothing that arrives later is delivered
}

type takeoverKey struct{}

// observe lets a watch that is forwarded end when memory can continue it, if it may. The caller calls the returned
// function at its end.
func (t *takeovers) observe(q *http.Request, info *request.RequestInfo) (_ *http.Request, done func()) {
	values := q.URL.Query()
	bookmarks, _ := strconv.ParseBool(values.Get("allowWatchBookmarks"))
	if info == nil || info.Verb != "watch" || !bookmarks || httpstream.IsUpgradeRequest(q) {
		return q, func() {}
	}
	initial := values.Has("sendInitialEvents")
	from, _ := keepwatch.ParseRevision(values.Get("resourceVersion")) // zero, the initial events come first
	w := &forwardedWatch{
		request: q, info: info, begun: time.Now(),
		selective: values.Get("labelSelector") != "" || values.Get("fieldSelector") != "",
		frames:    frameReader{at: from, initial: initial || from == 0, endsList: initial},
	}
	t.mu.Lock()
	t.open[w] = true
	t.mu.Unlock()
	q = q.Clone(context.WithValue(q.Context(), takeoverKey{}, w))
	q.Header.Del("Accept-Encoding") // frames of a compressed stream, as servers send the initial events, cannot be read
	return q, func() {
		t.mu.Lock()
		delete(t.open, w)
		t.mu.Unlock()
	}
}

// takeoverTransport reads the forwarded watches that may end.
type takeoverTransport struct{ http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport below.
func (t takeoverTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// RoundTrip sends a request.
func (t takeoverTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	w, ok := q.Context().Value(takeoverKey{}).(*forwardedWatch)
	if !ok {
		return t.RoundTripper.RoundTrip(q)
	}
	ctx, cancel := context.WithCancel(q.Context())
	answer, err := t.RoundTripper.RoundTrip(q.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = w.body(answer, cancel)
	return answer, nil
}

// body returns the body of the response to a watch, which ends when the watch does.
func (w *forwardedWatch) body(answer *http.Response, cancel context.CancelFunc) io.ReadCloser {
	w.mu.Lock()
	defer w.mu.Unlock()
	media := answer.Header.Get("Content-Type")
	w.frames.protobuf = strings.HasPrefix(media, runtime.ContentTypeProtobuf)
	w.frames.lost = answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Encoding") != "" ||
		!w.frames.protobuf && !strings.HasPrefix(media, runtime.ContentTypeJSON)
	w.end = cancel
	return &watchBody{answer.Body, w}
}

// watchBody is what the server sends of a watch.
type watchBody struct {
	io.ReadCloser
	watch *forwardedWatch
}

// Read reads until the watch ends. What arrives after that memory sends to the client, which connects again.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	w := b.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return 0, io.EOF
	}
	w.frames.read(p[:n])
	return n, err
}

// Close ends the request.
func (b *watchBody) Close() error {
	defer b.watch.end()
	return b.ReadCloser.Close()
}

// Continues reports whether memory answers a watch from a revision on. selective is whether the watch has a selector.
type Continues func(q *http.Request, info *request.RequestInfo, from keepwatch.Revision, selective bool) bool

// takeOver ends the watch if the client has received whole events, and memory continues it from the last one.
func (w *forwardedWatch) takeOver(continues Continues) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := w.frames.position()
	if w.ended || w.end == nil || from == 0 || !continues(w.request, w.info, from, w.selective) {
		return false
	}
	w.ended = true
	w.end() // a Read that waits returns
	return true
}

// run ends forwarded watches until ctx ends.
func (t *takeovers) run(ctx context.Context, continues Continues) {
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.turn(continues)
		case <-ctx.Done():
			return
		}
	}
}

// turn ends the oldest forwarded watches that memory can continue, up to takeoversAtOnce.
func (t *takeovers) turn(continues Continues) {
	t.mu.Lock()
	var all []*forwardedWatch
	for w := range t.open {
		if time.Since(w.begun) >= t.youngest {
			all = append(all, w)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b *forwardedWatch) int { return a.begun.Compare(b.begun) })
	taken := 0
	for _, w := range all {
		if taken == takeoversAtOnce {
			return
		}
		if w.takeOver(continues) {
			taken++
			t.total.WithLabelValues(w.info.APIGroup, w.info.APIVersion, w.info.Resource).Inc()
		}
	}
}
