package readpath

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/keepwatch/keepwatch/watchcache"
)

// watch prepares a WATCH's answer. It is passed on if there is none here.
func (s *Reader) watch(q *http.Request, asked query) (answer http.HandlerFunc, why reason) {
	select {
	case <-q.Context().Done():
		return nil, passState
	case <-s.Cache.Ended():
		return nil, passState
	default: // one that has not started is waited for
	}
	within, cancel := context.WithTimeout(q.Context(), asked.timeout)
	defer cancel()
	events, err := s.Cache.Watch(within, asked.key, asked.options)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && within.Err() != nil: // over before it could begin
		err = nil
	case err != nil && !waitedFor(err, asked) && !apierrors.IsResourceExpired(err): // which are sent in the stream
		return s.refuse(err, asked)
	}
	return (&watcher{Reader: s, events: events, refused: err, form: asked.form, timeout: asked.timeout}).serve, ""
}

// watcher is one watch over HTTP: it receives the events of a watch cache and writes them.
type watcher struct {
	*Reader
	events  *watchcache.Watch // nil if the watch is over before it could begin
	refused error             // why the watch can't begin
	form    form
	timeout time.Duration
	sent    func(bytes int) // counts an event

	ctx    context.Context // of the answer
	out    *gather
	http   *http.ResponseController
	titled bool // the columns of its tables were sent
}

// grace is how long what was written at the end of a watch may take to leave: whoever reads
// at all, on however busy a machine, gets the whole of it.
const grace = time.Minute

func (s *watcher) serve(w http.ResponseWriter, q *http.Request) {
	ctx, cancel := context.WithTimeout(q.Context(), s.timeout)
	defer cancel()
	media := mediaType(s.form)
	if isProtobuf(s.form) {
		media += ";stream=watch"
	}
	s.sent = s.counter(q.Context())
	w.Header().Set("Content-Type", media)
	w.WriteHeader(http.StatusOK)
	s.http = http.NewResponseController(w)
	// A slow client has time until the watch ends, and grace: after that it reads no more.
	_ = s.http.SetWriteDeadline(time.Now().Add(s.timeout + grace)) // HTTP/1 and 2 have one
	defer func() { _ = s.http.SetWriteDeadline(time.Time{}) }()    // the connection may be used again
	if s.http.Flush() != nil {
		return
	}
	s.ctx, s.out = ctx, s.gather(ctx, w)
	defer s.out.done()
	s.run()
}

// run writes events until the watch is over, and then the error that has ended it, if any. Nobody
// needs the error of a write: the client is gone.
func (s *watcher) run() {
	if s.refused == nil && s.events == nil {
		return
	}
	err := s.refused
	if err == nil {
		var shutdown <-chan struct{}
		if signals := request.ServerShutdownSignalFrom(s.ctx); signals != nil {
			shutdown = signals.ShuttingDown()
		}
		err = s.events.Serve(s.ctx, shutdown, s)
	}
	if err != nil {
		s.out.add(errorFrame(err, s.form)) // not written after a failed write
	}
	_ = s.Flush()
}

// Send adds an event. If that fails, the client receives the error, and must not continue without
// the event.
func (s *watcher) Send(e watchcache.Event, initial bool) error {
	if err := s.add(s.out, e, initial); err != nil {
		return err
	}
	return s.out.spill()
}

// Initialized writes what was added, and tells the library's flow control that the watch has
// caught up.
func (s *watcher) Initialized() error {
	if err := s.out.flush(); err != nil {
		return err
	}
	flowcontrol.WatchInitialized(s.ctx)
	return nil
}

// Flush writes what was added, and gives the buffer back.
func (s *watcher) Flush() error {
	err := s.out.flush()
	s.out.done()
	if err == nil {
		err = s.http.Flush()
		s.out.err = err
	}
	return err
}

// gather returns what frames are put together in, whose buffer counts for the watch's user. A
// watch holds one as long as a client takes to read it; a client may stop reading for good.
func (s *watcher) gather(ctx context.Context, w http.ResponseWriter) *gather {
	return &gather{w: w, room: func() func() {
		release := s.budget.watches.tryAcquire(userOf(ctx), perWatch)
		if release == nil {
			s.budget.counts.unchunked.Inc()
			return nil
		}
		uncount := s.budget.counts.hold(perWatch)
		return func() { uncount(); release() }
	}}
}

// add adds an event. The initial state is for this watch alone: its frames are not cached, unless
// there is no buffer to make them in. Then they are shared, so that many watches whose clients read
// nothing hold each of them once.
func (s *watcher) add(out *gather, e watchcache.Event, initial bool) (err error) {
	var frame []byte
	switch {
	case s.form == tableJSON:
		return s.addTable(out, e, initial)
	case e.Type != watch.Bookmark && initial && out.buffer():
		before := len(out.b)
		if out.b, err = s.appendFrame(out.b, e, s.form); err == nil {
			s.sent(len(out.b) - before)
		}
		return err
	case e.Type != watch.Bookmark:
		frame, err = s.frame(e, s.form)
	default:
		frame, err = s.appendFrame(nil, e, s.form)
	}
	if err != nil {
		return err
	}
	s.sent(len(frame))
	out.add(frame)
	return nil
}

// addTable adds an event as a table of one row, the first one with its columns. Rows are
// shared as frames are; ages are those of the moment.
func (s *watcher) addTable(out *gather, e watchcache.Event, initial bool) error {
	row := s.row
	if initial || e.Type == watch.Bookmark {
		row = s.ownRow
	}
	item, err := row(e)
	if err != nil {
		return err
	}
	frame, err := s.Table.appendTable(appendEventStart(make([]byte, 0, len(item)+frameRoom), e.Type), item, e.Revision.String(), !s.titled)
	if err != nil {
		return err
	}
	frame, s.titled = append(frame, "}\n"...), true
	s.sent(len(frame))
	out.add(frame)
	return nil
}

// counter counts events as kube-apiserver's metrics do.
func (s *watcher) counter(ctx context.Context) func(bytes int) {
	name := s.Resource.Resource
	events := metrics.WatchEvents.WithContext(ctx).WithLabelValues(name.Group, name.Version, name.Resource)
	sizes := metrics.WatchEventsSizes.WithContext(ctx).WithLabelValues(name.Group, name.Version, name.Resource)
	return func(bytes int) {
		events.Inc()
		sizes.Observe(float64(bytes))
	}
}

// errorFrame tells a client why its watch has ended.
func errorFrame(err error, f form) []byte {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	if isProtobuf(f) {
		raw, _ := status.Marshal() // it has nothing that can fail
		b := appendEventFields(nil, watch.Error, unknownSize(statusKind, len(raw)))
		b = append(appendUnknown(b, statusKind, len(raw)), raw...)
		return append(b, unknownEnd...)
	}
	status.SetGroupVersionKind(statusKind)
	object, _ := json.Marshal(&status)
	return append(append(appendEventStart(nil, watch.Error), object...), "}\n"...)
}

var statusKind = metav1.Unversioned.WithKind("Status")
