package storage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

const (
	// bookmarkEvery is how often a watch is told how far it has come, and bookmarkBefore
	// how long before its deadline, so that it goes on from there. As in kube-apiserver.
	bookmarkEvery  = time.Minute
	bookmarkBefore = 2 * time.Second
	// ahead is how many events a watch may be ahead of its reader.
	ahead = 16
)

// errBehind is the end of a watch that has missed what can't be told any more.
var errBehind = apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.")

// watcher is one watch: it pulls from the store and sends to its reader.
type watcher struct {
	storage *Storage
	scope   scope
	options apistorage.ListOptions
	cursor  *store.Watcher
	byKey   bool // the filter goes by keys alone
	events  chan watch.Event
	ctx     context.Context
	stop    context.CancelFunc
}

// watch starts a watcher. It ends when its reader stops it, with ctx, and with the
// storage.
func (s *Storage) watch(ctx context.Context, c scope, options apistorage.ListOptions, begin beginning) *watcher {
	w := &watcher{storage: s, scope: c, options: options, events: make(chan watch.Event, ahead)}
	filter, byKey := c.filter(options.Predicate)
	w.byKey, w.cursor = byKey, s.store.Watch(begin.cursor, filter)
	w.ctx, w.stop = context.WithCancel(ctx)
	go func() {
		defer close(w.events)
		defer w.stop()
		if life := s.living(); life != nil {
			defer context.AfterFunc(life, w.stop)()
		}
		if err := w.run(begin); err != nil && w.ctx.Err() == nil {
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
func (w *watcher) run(begin beginning) error {
	if begin.state != nil {
		if err := w.sendState(begin); err != nil {
			return err
		}
	}
	flowcontrol.WatchInitialized(w.ctx)
	bookmark := time.NewTimer(w.untilBookmark())
	defer bookmark.Stop()
	for w.ctx.Err() == nil {
		delivery, newer, err := w.cursor.Poll()
		if err != nil {
			return w.expired(err)
		}
		if delivery == nil {
			select {
			case <-newer:
				continue
			case <-bookmark.C:
			case <-w.ctx.Done():
				return nil
			}
		} else if err := w.tell(delivery); err != nil {
			return err
		} else if !due(bookmark) {
			continue
		}
		bookmark.Reset(w.untilBookmark())
		if err := w.bookmark(false); err != nil {
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

// untilBookmark is when to send the next one.
func (w *watcher) untilBookmark() time.Duration {
	wait := bookmarkEvery
	if deadline, ok := w.ctx.Deadline(); ok {
		if last := time.Until(deadline) - bookmarkBefore; last > 0 {
			wait = min(wait, last)
		}
	}
	return wait
}

// bookmark tells how far the watch has come, if its reader wants to know. One marks
// the end of the state that was sent first.
func (w *watcher) bookmark(initialEnd bool) error {
	if !w.options.Predicate.AllowWatchBookmarks && !w.options.ProgressNotify {
		return nil
	}
	o, err := w.storage.marker(w.cursor.Cursor().Revision)
	if err == nil && initialEnd {
		err = apistorage.AnnotateInitialEventsEndBookmark(o)
	}
	if err == nil {
		w.send(watch.Event{Type: watch.Bookmark, Object: o})
	}
	return err
}

// sendState sends the objects of a state in key order.
func (w *watcher) sendState(begin beginning) error {
	for o := range w.scope.objects(begin.state, "") {
		known, err := w.storage.read(o)
		if err != nil {
			return err
		}
		if selects(w.options.Predicate, known) && !w.send(watch.Event{Type: watch.Added, Object: known.decoded.DeepCopyObject()}) {
			return nil
		}
	}
	if begin.marked {
		return w.bookmark(true)
	}
	return nil
}

// tell sends what the store delivers.
func (w *watcher) tell(d keepwatch.Delivery) error {
	switch d := d.(type) {
	case keepwatch.Batch:
		if d.Bookmark() && w.options.ProgressNotify {
			return w.bookmark(false)
		}
		return w.tellChanges(d.Changes)
	case keepwatch.Gap:
		if !w.byKey || d.Reason == keepwatch.GapRewind {
			return errBehind
		}
		return w.tellChanges(resumable(d))
	}
	return nil
}

func (w *watcher) tellChanges(changes []keepwatch.Change) error {
	for _, c := range changes {
		if !w.scope.covers(c.Object.Key()) {
			continue
		}
		e, err := w.storage.event(c)
		if err != nil {
			return err
		}
		if !w.send(e) {
			return nil
		}
	}
	return nil
}

// resumable puts the changes of a gap in an order in which a reader that has seen
// some of them, and goes on from the revision of the last one, is told the others:
// by revision. Deletions of which no more is known than that they were in the gap
// come first and move the reader nowhere.
func resumable(gap keepwatch.Gap) []keepwatch.Change {
	changes := slices.Clone(gap.Changes)
	for i := range changes {
		if c := &changes[i]; c.Type == keepwatch.Deleted && c.Revision >= gap.To {
			c.Revision = gap.From
		}
	}
	slices.SortStableFunc(changes, func(a, b keepwatch.Change) int { return cmp.Compare(a.Revision, b.Revision) })
	return changes
}

// expired words the end of a watch that the store can't continue.
func (w *watcher) expired(err error) error {
	if failure := (*keepwatch.Failure)(nil); errors.As(err, &failure) && failure.Kind == keepwatch.Expired {
		return apierrors.NewResourceExpired(failure.Error())
	}
	return err
}
