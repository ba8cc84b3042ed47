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

	"github.com/keepwatch/keepwatch/storage"
)

// watch prepares a WATCH's answer. It is passed on if there is none here.
func (s *Reader) watch(q *http.Request, asked query) (answer http.HandlerFunc, why reason) {
	select {
	case <-q.Context().Done():
		return nil, passState
	case <-s.Storage.Ended():
		return nil, passState
	default: // one that has not started is waited for
	}
	within, cancel := context.WithTimeout(q.Context(), asked.timeout)
	defer cancel()
	feed, err := s.Storage.Feed(within, asked.key, asked.options)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && within.Err() != nil: // over before it could begin
		err = nil
	case err != nil && !waitedFor(err, asked) && !apierrors.IsResourceExpired(err): // which are sent in the stream
		return s.refuse(err, asked)
	}
	return (&watcher{Reader: s, feed: feed, refused: err, form: asked.form, timeout: asked.timeout}).serve, ""
}

// watcher is one watch over HTTP: it pulls from a feed and writes.
type watcher struct {
	*Reader
	feed    *storage.Feed // nil if it is over before it could begin
	refused error         // why there is none
	form    form
	timeout time.Duration
	sent    func(bytes int) // counts an event

	bookmark *time.Timer // fires when the client is to be told how far it has come
	titled   bool        // the columns of its tables have been told
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
	out := http.NewResponseController(w)
	// Who is slow is waited for, but not longer than the watch lasts: behind it, nobody reads.
	_ = out.SetWriteDeadline(time.Now().Add(s.timeout + grace)) // HTTP/1 and 2 have one
	defer func() { _ = out.SetWriteDeadline(time.Time{}) }()    // the connection may be used again
	if out.Flush() != nil {
		return
	}
	_ = s.run(ctx, w, out) // who has to know why it ended is gone
}

// run writes events until the watch is over.
func (s *watcher) run(ctx context.Context, w http.ResponseWriter, out *http.ResponseController) error {
	if s.refused != nil {
		_, err := w.Write(errorFrame(s.refused, s.form))
		return err
	}
	if s.feed == nil {
		return nil
	}
	s.bookmark = time.NewTimer(storage.UntilBookmark(ctx))
	defer s.bookmark.Stop()
	var shutdown <-chan struct{}
	if signals := request.ServerShutdownSignalFrom(ctx); signals != nil {
		shutdown = signals.ShuttingDown()
	}
	if s.feed.Initialized() {
		flowcontrol.WatchInitialized(ctx)
	}
	for {
		newer, err := s.send(ctx, w)
		if err == nil {
			err = out.Flush()
		}
		if err != nil || newer == nil {
			return err
		}
		select {
		case <-newer:
			continue
		case <-s.bookmark.C:
			if err := s.tellPlace(ctx, w); err != nil {
				return err
			}
		case <-ctx.Done(): // send adds the bookmark that is due
		case <-shutdown:
			return nil
		case <-s.Storage.Ended():
			return nil
		}
	}
}

// send writes all there is, and returns the channel that closes when there is more,
// or nil if the feed has ended.
func (s *watcher) send(ctx context.Context, w http.ResponseWriter) (newer <-chan struct{}, err error) {
	out := s.gather(ctx, w)
	defer out.done()
	for ctx.Err() == nil && newer == nil {
		initial, initialized := s.feed.Initial(), s.feed.Initialized()
		var events []storage.Event
		var failure error
		events, newer, failure = s.feed.Poll()
		for _, e := range events {
			if err := s.add(out, e, initial); err != nil {
				failure = err // the client is told, and must not go on without the event
				break
			}
			if err := out.spill(); err != nil {
				return nil, err
			}
		}
		if failure == nil && !initialized && s.feed.Initialized() {
			if err := out.flush(); err != nil {
				return nil, err
			}
			flowcontrol.WatchInitialized(ctx) // who is always behind would never get to where there is no more
		}
		if failure == nil && newer == nil && !initial {
			failure = s.placeIfDue(ctx, out)
		}
		if failure != nil {
			out.add(errorFrame(failure, s.form))
			return nil, out.flush()
		}
	}
	if ctx.Err() != nil {
		return nil, s.sendLast(ctx, out)
	}
	return newer, out.flush()
}

// sendLast writes what was gathered when the watch's time ended, and the bookmark of its last
// seconds if they passed while events were written.
func (s *watcher) sendLast(ctx context.Context, out *gather) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && !s.feed.Initial() {
		if err := s.placeIfDue(ctx, out); err != nil {
			return err
		}
	}
	return out.flush()
}

// tellPlace writes how far the watch has come.
func (s *watcher) tellPlace(ctx context.Context, w http.ResponseWriter) error {
	out := s.gather(ctx, w)
	defer out.done()
	if err := s.place(ctx, out); err != nil {
		return err
	}
	return out.flush()
}

// placeIfDue is for who is behind, maybe for ever: it never comes to wait for the timer.
func (s *watcher) placeIfDue(ctx context.Context, out *gather) error {
	select {
	case <-s.bookmark.C:
		return s.place(ctx, out)
	default:
		return nil
	}
}

// place adds how far the watch has come, if the client wants to know.
func (s *watcher) place(ctx context.Context, out *gather) error {
	s.bookmark.Reset(storage.UntilBookmark(ctx))
	return s.add(out, s.feed.Bookmark(), false)
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

// add adds an event, if the client wants it. The state that a watch begins with is for it
// alone: its frames are not cached, unless there is no buffer to make them in. Then they are
// shared, so that many watches that nobody reads hold each of them once.
func (s *watcher) add(out *gather, e storage.Event, initial bool) (err error) {
	var frame []byte
	switch {
	case e.Type == watch.Bookmark && !s.feed.Bookmarks():
		return nil
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
func (s *watcher) addTable(out *gather, e storage.Event, initial bool) error {
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
