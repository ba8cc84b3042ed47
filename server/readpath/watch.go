package readpath

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/server/httplog"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// watch returns the response to a WATCH, or the reason to delegate it. It waits for a cache that is
// starting.
func (s *Reader) watch(q *http.Request, r readRequest) (http.HandlerFunc, reason) {
	select {
	case <-q.Context().Done():
		return nil, reasonState
	case <-s.resource.Cache.Ended():
		return nil, reasonState
	default:
	}
	ctx, cancel := context.WithTimeout(q.Context(), r.timeout)
	defer cancel()
	events, err := s.watchOf(ctx, r)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil: // the watch ended before it began
		err = nil
	case err != nil && !waitedFor(err, r) && !apierrors.IsResourceExpired(err): // these two are sent as events
		return s.answerError(err, r)
	}
	return (&watchResponse{Reader: s, events: events, startError: err, encoding: r.encoding, gzip: compresses(q, r),
		timeout: r.timeout}).serve, ""
}

// compresses reports whether a watch is compressed: one that sends the initial state and a bookmark after
// it, as in kube-apiserver.
func compresses(q *http.Request, r readRequest) bool {
	initial := r.options.SendInitialEvents
	return initial != nil && *initial && r.options.Predicate.AllowWatchBookmarks &&
		responsewriters.ContentEncodingSupported(q, features.WatchListCompression) == "gzip"
}

// watchResponse is a watch over HTTP. It receives the events of a watch cache and writes them.
type watchResponse struct {
	*Reader
	events     *watchcache.Watch // nil if the watch ended before it began
	startError error             // why the watch can't begin
	encoding   encoding
	gzip       bool
	timeout    time.Duration
	countEvent func(bytes int)
	initialUse use // of the item encodings of initial events, once listed is set
	listed     bool
	// initialBytes are those of the item encodings of initial events.
	initialBytes int

	ctx         context.Context // of the response
	out         *eventWriter
	http        *http.ResponseController
	columnsSent bool // of a Table
}

// writeGrace is how long a client may take to read what is left when its watch is over. A client that reads slowly, and
// has not received everything then, resumes with another watch.
const writeGrace = time.Minute

func (s *watchResponse) serve(w http.ResponseWriter, q *http.Request) {
	ctx, cancel := context.WithTimeout(q.Context(), s.timeout)
	defer cancel()
	media := mediaType(s.encoding)
	if isProtobuf(s.encoding) {
		media += ";stream=watch"
	}
	s.countEvent = s.eventCounter(q.Context())
	w.Header().Set("Content-Type", media)
	if s.gzip {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("Vary", "Accept-Encoding")
	}
	w.WriteHeader(http.StatusOK)
	s.http = http.NewResponseController(w)
	defer s.boundWrites(ctx)()
	if s.http.Flush() != nil {
		return
	}
	s.ctx, s.out = ctx, s.newEventWriter(ctx, w)
	defer s.out.releaseBuffer()
	s.run()
}

// boundWrites sets the write deadline of the response when ctx or the cache has ended, to the budget's writeGrace
// later. Otherwise a client that reads nothing would keep the watch, and all objects of its cache, for ever. release
// removes the deadline.
func (s *watchResponse) boundWrites(ctx context.Context) (release func()) {
	var mu sync.Mutex
	done := false // the deadline is set, or release was called
	bound := func() {
		mu.Lock()
		defer mu.Unlock()
		if !done { // the second end does not extend the deadline: a write that fails at it ends ctx
			_ = s.http.SetWriteDeadline(time.Now().Add(s.budget.writeGrace)) // HTTP/1 and HTTP/2 support it
		}
		done = true
	}
	stopWatch, stopCache := context.AfterFunc(ctx, bound), s.resource.Cache.AfterEnd(bound)
	return func() {
		stopWatch()
		stopCache()
		mu.Lock()
		defer mu.Unlock()
		done = true
		_ = s.http.SetWriteDeadline(time.Time{}) // the connection may serve another request
	}
}

// run writes events until the watch ends, and then the error that ended it, if any. It ignores errors
// of writes: the client is gone.
func (s *watchResponse) run() {
	if s.startError == nil && s.events == nil {
		return
	}
	err := s.startError
	if err == nil {
		var shutdown <-chan struct{}
		if signals := request.ServerShutdownSignalFrom(s.ctx); signals != nil {
			shutdown = signals.ShuttingDown()
		}
		err = s.events.Serve(s.ctx, shutdown, s)
	}
	if err != nil {
		s.out.addUnshared(errorEvent(err, s.encoding)) // not written after a failed write
	}
	_ = s.Flush()
}

// Send adds an event. If it can't be encoded, the client receives the error instead, and the watch ends.
func (s *watchResponse) Send(e watchcache.Event, initial bool) error {
	if err := s.add(s.out, e, initial); err != nil {
		return err
	}
	if e.InitialEnd {
		return s.endInitialEvents()
	}
	return s.out.flushIfLarge()
}

// endInitialEvents writes the initial events, and reports how long they took since the request arrived.
func (s *watchResponse) endInitialEvents() error {
	err := s.Flush()
	if received, ok := request.ReceivedTimestampFrom(s.ctx); ok && err == nil {
		took := time.Since(received)
		info, _ := request.RequestInfoFrom(s.ctx)
		metrics.RecordWatchListLatency(s.ctx, s.resource.Resource, metrics.CleanScope(info), took)
		httplog.AddKeyValue(s.ctx, "watchlist_init_latency", took)
	}
	return err
}

// Initialized writes the added events, and reports to the library's flow control that the watch has
// caught up.
func (s *watchResponse) Initialized() error {
	if err := s.out.flush(); err != nil {
		return err
	}
	if s.gzip {
		s.out.compression = compressEvents
	}
	flowcontrol.WatchInitialized(s.ctx)
	return nil
}

// Flush writes the added events and releases the buffer.
func (s *watchResponse) Flush() error {
	err := s.out.flush()
	s.out.releaseBuffer()
	if err == nil {
		err = s.http.Flush()
		s.out.err = err
	}
	return err
}

// newEventWriter returns a writer whose buffer counts for the user of the watch. A watch occupies a
// buffer until its client has read it, which may never happen.
func (s *watchResponse) newEventWriter(ctx context.Context, w http.ResponseWriter) *eventWriter {
	how := uncompressed
	if s.gzip {
		how = compressBuffers
	}
	return &eventWriter{w: w, compression: how, acquire: func() func() {
		release := s.budget.watches.tryAcquire(flowOf(ctx), watchBufferSize)
		if release == nil {
			s.budget.counts.watchBuffersRefused.Inc()
			return nil
		}
		uncount := s.budget.counts.countBuffer(watchBufferSize)
		return func() { uncount(); release() }
	}}
}

// add adds an event. The initial state belongs to this watch alone, so its encodings are not cached,
// unless there is no buffer to encode them into, or one is too small. Then they are shared, so that many watches whose
// clients read nothing occupy the memory of one.
func (s *watchResponse) add(out *eventWriter, e watchcache.Event, initial bool) error {
	switch {
	case isTable(s.encoding):
		return s.addTable(out, e, initial)
	case e.Type == watch.Bookmark:
		encoded, err := s.appendEncodedEvent(nil, e, s.encoding, onlyRead)
		if err == nil {
			s.countEvent(len(encoded))
			out.addUnshared(encoded)
		}
		return err
	case initial && !out.takesMembers() && out.ensureBuffer(): // a view changes later, too
		if added, err := s.addInitial(out, e); added || err != nil {
			return err
		}
	}
	return s.addShared(out, e)
}

// useInitially returns how initial events use item encodings: as a list does. A small list is none that is recorded.
func (s *watchResponse) useInitially() use {
	switch {
	case s.initialBytes < gzipFrom:
		return listRead
	case !s.listed:
		s.listed, s.initialUse = true, s.listUse(s.encoding, 0, false, listRead)
	}
	return s.initialUse
}

// addInitial encodes an event into the buffer, if it fits.
func (s *watchResponse) addInitial(out *eventWriter, e watchcache.Event) (added bool, err error) {
	item, err := s.eventItem(e, s.encoding, s.useInitially())
	if err != nil || !out.makeRoom(len(item)+maxEventOverhead) {
		return false, err
	}
	s.initialBytes += len(item)
	before := len(out.b)
	out.b = s.resource.appendEvent(out.b, e.Type, item, s.encoding)
	s.countEvent(len(out.b) - before)
	return true, nil
}

// addShared adds an event whose encoding all watches share.
func (s *watchResponse) addShared(out *eventWriter, e watchcache.Event) error {
	if !out.takesMembers() {
		encoded, err := s.eventEncoding(e, s.encoding)
		if err != nil {
			return err
		}
		if out.takesPlain(len(encoded)) {
			s.countEvent(len(encoded))
			out.add(encoded)
			return nil
		}
	}
	member, err := s.eventMember(e, s.encoding)
	if err == nil {
		s.countEvent(memberLength(member))
		out.addMember(member)
	}
	return err
}

// addTable adds an event as a Table of one row; the first one has the columns. Watches share the rows,
// without the ages.
func (s *watchResponse) addTable(out *eventWriter, e watchcache.Event, initial bool) error {
	var row []byte
	var err error
	switch {
	case e.Type == watch.Bookmark:
		row, err = s.eventItem(e, s.encoding, onlyRead)
	case initial:
		row, err = s.eventItem(e, s.encoding, s.useInitially())
	default:
		row, err = s.eventRow(e, s.encoding)
	}
	if err != nil {
		return err
	}
	b := appendEventStart(make([]byte, 0, len(row)+eventOverhead), e.Type)
	if b, err = s.resource.Table.appendTable(b, row, e.Revision.String(), !s.columnsSent, s.encoding); err != nil {
		return err
	}
	b, s.columnsSent = append(b, "}\n"...), true
	s.countEvent(len(b))
	out.addUnshared(b)
	return nil
}

// eventCounter returns a function that counts events in kube-apiserver's metrics.
func (s *watchResponse) eventCounter(ctx context.Context) func(bytes int) {
	name := s.resource.Resource
	events := metrics.WatchEvents.WithContext(ctx).WithLabelValues(name.Group, name.Version, name.Resource)
	sizes := metrics.WatchEventsSizes.WithContext(ctx).WithLabelValues(name.Group, name.Version, name.Resource)
	return func(bytes int) {
		events.Inc()
		sizes.Observe(float64(bytes))
	}
}
