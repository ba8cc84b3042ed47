package storage

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

const (
	// eventBuffer is how many events a watch may be ahead of its reader.
	eventBuffer = 16
	// readGrace is how long an event of a watch whose storage has ended waits for the reader, as an answer over HTTP does.
	readGrace = time.Minute
)

// Watch watches the objects at a key or below it. When it returns, it has decided where the watch
// begins; later failures are error events.
func (s *Storage) Watch(ctx context.Context, key string, options apistorage.ListOptions) (watch.Interface, error) {
	w, err := s.cache.Watch(ctx, key, options)
	if refused := (watchcache.RequestError{}); errors.As(err, &refused) {
		return nil, refused.Err
	}
	if err != nil {
		return failedWatch(ctx, err), nil
	}
	return s.serve(ctx, w), nil
}

// watcher is one watch, whose events go to a channel.
type watcher struct {
	storage *Storage
	events  chan watch.Event
	ctx     context.Context
	stop    context.CancelFunc
	// initialized reports whether everything that there was when the watch began was sent.
	initialized bool
}

// serve starts a watcher. It ends when its reader stops it, with ctx, and with the storage.
func (s *Storage) serve(ctx context.Context, from *watchcache.Watch) *watcher {
	w := &watcher{storage: s, events: make(chan watch.Event, eventBuffer)}
	w.ctx, w.stop = context.WithCancel(ctx)
	go func() {
		defer close(w.events)
		defer w.stop()
		if err := from.Serve(w.ctx, nil, w); err != nil && w.ctx.Err() == nil {
			w.put(errorEvent(err))
		}
	}()
	return w
}

// Stop ends the watch. Events that were sent already can still be read.
func (w *watcher) Stop() { w.stop() }

// ResultChan returns a channel that is closed when the watch has ended.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

// Send sends an event. The initial state belongs to this watch alone: its encodings are not worth
// caching.
func (w *watcher) Send(e watchcache.Event, initial bool) error {
	o, err := w.object(e, initial)
	if err != nil {
		return err
	}
	w.put(watch.Event{Type: e.Type, Object: o})
	return nil
}

// put sends an event, unless the watch ends before the reader takes it, which the watch loop notices. What the cache
// has at its end nobody else sends: then the reader has a minute for an event.
func (w *watcher) put(e watch.Event) {
	if w.ctx.Err() != nil {
		return
	}
	select {
	case w.events <- e:
		return
	case <-w.ctx.Done():
		return
	case <-w.storage.cache.Ended():
	}
	late := time.NewTimer(readGrace)
	defer late.Stop()
	select {
	case w.events <- e:
	case <-w.ctx.Done():
	case <-late.C:
		w.stop()
	}
}

// object returns the object of an event.
func (w *watcher) object(e watchcache.Event, initial bool) (runtime.Object, error) {
	switch {
	case e.Type == watch.Bookmark:
		return w.storage.cache.BookmarkObject(e)
	case initial:
		return e.Object.Decoded()
	case w.storage.config.Unshared:
		return w.storage.ownObject(e)
	}
	shared, err := w.storage.sharedObject(e)
	if err != nil {
		return nil, err
	}
	if !w.initialized {
		return historicObject{shared}, nil
	}
	return shared, nil
}

// Initialized reports to the library's flow control that the watch has caught up.
func (w *watcher) Initialized() error {
	w.initialized = true
	flowcontrol.WatchInitialized(w.ctx)
	return nil
}

// Flush does nothing: the reader has the channel.
func (w *watcher) Flush() error { return nil }

// failedWatch returns a watch that ends with an error at once, or with nothing if ctx is done.
func failedWatch(ctx context.Context, err error) watch.Interface {
	events := make(chan watch.Event, 1)
	if ctx.Err() == nil {
		events <- errorEvent(err)
	}
	close(events)
	return watch.NewProxyWatcher(events)
}

// errorEvent returns the error event of a watch.
func errorEvent(err error) watch.Event {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	return watch.Event{Type: watch.Error, Object: &status}
}
