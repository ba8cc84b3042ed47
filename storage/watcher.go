package storage

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

const (
	// bookmarkEvery is how often a watch is told how far it has come, and bookmarkBefore
	// how long before its deadline, so that it goes on from there. As in kube-apiserver.
	bookmarkEvery  = time.Minute
	bookmarkBefore = 2 * time.Second
	// ahead is how many events a watch may be ahead of its reader.
	ahead = 16
)

// watcher is one watch: it pulls from a feed and sends to its reader.
type watcher struct {
	feed   *Feed
	events chan watch.Event
	ctx    context.Context
	stop   context.CancelFunc
}

// watch starts a watcher. It ends when its reader stops it, with ctx, and with the
// storage.
func (s *Storage) watch(ctx context.Context, feed *Feed) *watcher {
	w := &watcher{feed: feed, events: make(chan watch.Event, ahead)}
	w.ctx, w.stop = context.WithCancel(ctx)
	go func() {
		defer close(w.events)
		defer w.stop()
		if life := s.living(); life != nil {
			defer context.AfterFunc(life, w.stop)()
		}
		if err := w.run(); err != nil && w.ctx.Err() == nil {
			w.send(errorEvent(err))
		}
	}()
	return w
}

// Stop ends the watch. What was sent already can still be read.
func (w *watcher) Stop() { w.stop() }

// ResultChan is closed when the watch has ended.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

// send reports whether the reader still listens.
func (w *watcher) send(e watch.Event) bool {
	if w.ctx.Err() != nil {
		return false
	}
	select {
	case w.events <- e:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// run sends events until something goes wrong or the watch is over.
func (w *watcher) run() error {
	bookmark := time.NewTimer(UntilBookmark(w.ctx))
	defer bookmark.Stop()
	if w.feed.Initialized() {
		flowcontrol.WatchInitialized(w.ctx)
	}
	for w.ctx.Err() == nil {
		initial, initialized := w.feed.Initial(), w.feed.Initialized()
		events, newer, err := w.feed.Poll()
		if err := w.tell(events, initial); err != nil {
			return err
		}
		if err != nil {
			return err
		}
		if !initialized && w.feed.Initialized() {
			flowcontrol.WatchInitialized(w.ctx)
		}
		if newer != nil {
			select {
			case <-newer:
				continue
			case <-bookmark.C:
			case <-w.ctx.Done():
				return nil
			}
		} else if initial || !due(bookmark) {
			continue
		}
		bookmark.Reset(UntilBookmark(w.ctx))
		if err := w.tell([]Event{w.feed.Bookmark()}, false); err != nil {
			return err
		}
	}
	return nil
}

// due reports whether a timer has fired.
func due(t *time.Timer) bool {
	select {
	case <-t.C:
		return true
	default:
		return false
	}
}

// UntilBookmark is how long from now a watch is to be told how far it has come: a
// minute, but early enough before the deadline of ctx.
func UntilBookmark(ctx context.Context) time.Duration {
	wait := bookmarkEvery
	if deadline, ok := ctx.Deadline(); ok {
		if last := time.Until(deadline) - bookmarkBefore; last > 0 {
			wait = min(wait, last)
		}
	}
	return wait
}

// tell sends events, and bookmarks if the reader wants them. The state that a watch
// begins with is nobody else's: its encodings are not worth keeping.
func (w *watcher) tell(events []Event, initial bool) error {
	for _, e := range events {
		told, err := w.object(e, initial)
		if err != nil {
			return err
		}
		if told != nil && !w.send(watch.Event{Type: e.Type, Object: told}) {
			return nil
		}
	}
	return nil
}

// object is what an event shows; nil if the reader does not want it.
func (w *watcher) object(e Event, initial bool) (runtime.Object, error) {
	switch {
	case e.Type != watch.Bookmark && initial:
		return e.Object.Decoded()
	case e.Type != watch.Bookmark:
		return w.feed.storage.shared(e)
	case !w.feed.Bookmarks():
		return nil, nil
	}
	return w.feed.storage.Marker(e)
}
