package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

const (
	// takeoverEvery is the time between two turns in which forwarded watches end, and takeoversAtOnce how many end in one:
	// their clients connect again.
	takeoverEvery, takeoversAtOnce = time.Second, 50
	// youngestTakeover is the age from which on a forwarded watch may end. client-go lists again after a watch that has
	// lasted for less than a second and has delivered nothing.
	youngestTakeover = 5 * time.Second
	// maxFrame bounds what is kept of a frame that has not arrived as a whole. The revision of a longer one is not known.
	maxFrame = 64 << 10
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

func newTakeovers(registry watchcache.Registry) *takeovers {
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
func (t *takeovers) observe(q *http.Request, info *request.RequestInfo, why reason) (_ *http.Request, done func()) {
	values := q.URL.Query()
	bookmarks, _ := strconv.ParseBool(values.Get("allowWatchBookmarks"))
	if info == nil || info.Verb != "watch" || !bookmarks || why != reasonNotReady && why != reasonRevision ||
		httpstream.IsUpgradeRequest(q) {
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

// takeOver ends the watch if the client has received whole events, and continues says that memory continues from the
// last one.
func (w *forwardedWatch) takeOver(continues func(from keepwatch.Revision) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.end == nil || w.frames.position() == 0 || !continues(w.frames.position()) {
		return false
	}
	w.ended = true
	w.end() // a Read that waits returns
	return true
}

// current returns the follower that answers a request, if it has caught up with the server, or nil. It begins nothing.
func (c *caches) current(q *http.Request, info *request.RequestInfo) *follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[resourceOf(info)]
	if e == nil || !e.until.IsZero() || e.about == nil {
		return nil
	}
	as, ok := c.representationOf(e.about, q, info)
	f := e.followers[as]
	if !ok || f == nil || f.reader.Cache().ReadinessCheck() != nil || f.format.HasUnknownMetadata() && wantsMetadata(q) {
		return nil
	}
	return f
}

// run ends forwarded watches until ctx ends.
func (t *takeovers) run(ctx context.Context, c *caches) {
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.turn(c)
		case <-ctx.Done():
			return
		}
	}
}

// turn ends the oldest forwarded watches that memory can continue, up to takeoversAtOnce.
func (t *takeovers) turn(c *caches) {
	t.mu.Lock()
	var all []*forwardedWatch
	for w := range t.open {
		if time.Since(w.begun) >= t.youngest {
			all = append(all, w)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b *forwardedWatch) int { return a.begun.Compare(b.begun) })
	if !c.probe.SilentSince().IsZero() {
		return
	}
	taken := 0
	for _, w := range all {
		if taken == takeoversAtOnce {
			return
		}
		f := c.current(w.request, w.info)
		if f == nil || !f.source.FailingSince().IsZero() || !f.reader.Answers(w.request, w.info) {
			continue
		}
		cache := f.reader.Cache()
		if w.takeOver(func(from keepwatch.Revision) bool {
			return cache.Revision() >= from && cache.CanResume(from, w.selective)
		}) {
			taken++
			t.total.WithLabelValues(f.resource.Group, f.resource.Version, f.resource.Resource).Inc()
		}
	}
}

// frameReader reads the revisions of the events of a watch.
type frameReader struct {
	protobuf bool
	initial  bool               // the initial events have not ended, whose revisions say nothing
	endsList bool               // a bookmark that says so ends them, not any one
	at       keepwatch.Revision // of the last event, zero if it is not known
	lost     bool               // no further revision is known: the stream is none of events, or an error has ended it
	part     []byte             // of a frame that has not ended
	skip     int                // bytes of part that were dropped, because the frame is longer than maxFrame
}

// position returns the revision up to which whole events were read, zero if it is not known or the last event is not
// whole.
func (r *frameReader) position() keepwatch.Revision {
	if r.lost || r.initial || len(r.part) > 0 || r.skip > 0 {
		return 0
	}
	return r.at
}

// read reads on.
func (r *frameReader) read(b []byte) {
	for len(b) > 0 && !r.lost {
		size, whole := r.frame(b)
		if !whole {
			r.keep(b)
			return
		}
		r.event(b[:size])
		b = b[size:]
	}
}

// frame returns how much of b belongs to the frame that has begun, and whether that is its end.
func (r *frameReader) frame(b []byte) (size int, whole bool) {
	if !r.protobuf {
		end := bytes.IndexByte(b, '\n')
		return end + 1, end >= 0
	}
	kept := min(len(r.part), 4)
	head := append(r.part[:kept:kept], b[:min(len(b), 4)]...)
	if len(head) < 4 {
		return 0, false
	}
	size = 4 + int(binary.BigEndian.Uint32(head)) - len(r.part) - r.skip
	return size, size <= len(b)
}

// keep keeps a part of a frame, as far as it may become long.
func (r *frameReader) keep(b []byte) {
	n := min(len(b), maxFrame-len(r.part))
	r.part = append(r.part, b[:n]...)
	r.skip += len(b) - n
}

// event reads the event that ends with b.
func (r *frameReader) event(b []byte) {
	dropped := r.skip > 0
	if len(r.part) > 0 {
		b = append(r.part, b...)
	}
	r.part, r.skip = nil, 0
	if dropped {
		r.at = 0 // the type is not known either, but an error is short, and so is a bookmark
		return
	}
	if r.initial && !bytes.Contains(b, []byte(watch.Bookmark)) && !bytes.Contains(b, []byte(watch.Error)) {
		return
	}
	kind, revision, endsList := decodeEvent(b, r.protobuf)
	switch kind {
	case watch.Error:
		r.lost = true
	case watch.Bookmark:
		r.initial = r.initial && r.endsList && !endsList
	}
	r.at = revision
}

// decodeEvent returns the type of an event, the revision of its object, zero if it cannot be read, and whether it ends
// the initial events.
func decodeEvent(b []byte, isProtobuf bool) (kind watch.EventType, revision keepwatch.Revision, endsList bool) {
	var event struct {
		Type   watch.EventType
		Object struct {
			Metadata struct {
				ResourceVersion string
				Annotations     map[string]string
			}
		}
	}
	if isProtobuf {
		var message metav1.WatchEvent
		var object runtime.Unknown
		var read metav1.PartialObjectMetadata // all objects have their metadata in its field
		if message.Unmarshal(b[4:]) != nil {
			return watch.Error, 0, false
		}
		envelope, ok := bytes.CutPrefix(message.Object.Raw, []byte("k8s\x00"))
		if !ok || object.Unmarshal(envelope) != nil || read.Unmarshal(object.Raw) != nil {
			return watch.Error, 0, false
		}
		event.Type = watch.EventType(message.Type)
		event.Object.Metadata.ResourceVersion, event.Object.Metadata.Annotations = read.ResourceVersion, read.Annotations
	} else if json.Unmarshal(b, &event) != nil {
		return watch.Error, 0, false
	}
	revision, _ = keepwatch.ParseRevision(event.Object.Metadata.ResourceVersion)
	return event.Type, revision, event.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}
