package storage

import (
	"cmp"
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	apistorage "k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// errBehind is the end of a feed that has missed what can't be told any more.
var errBehind = apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.")

// Event is what a feed tells: a state of an object, or how far the feed has come.
type Event struct {
	// Type is Added, Modified, Deleted or Bookmark.
	Type watch.EventType
	// Object is the state, for Deleted the last one; nil for a bookmark.
	Object *Object
	// Revision is the event's: what the object is to be shown with. For a Deleted it is
	// that of the deletion.
	Revision keepwatch.Revision
	// InitialEnd marks the bookmark behind the state that a feed began with.
	InitialEnd bool
}

// Feed is a watch that is pulled: what [Storage.Watch] sends, before it is made into
// objects. It holds no goroutine, needs no closing, and nothing is queued for it.
// Not for concurrent use.
type Feed struct {
	storage *Storage
	scope   scope
	options apistorage.ListOptions
	cursor  *store.Watcher
	byKey   bool            // the filter goes by keys alone
	state   []store.Segment // what is still to be told of the state that it began with
	stated  bool            // nothing is
	marked  bool            // the end of the state is told, by a bookmark
	resumed bool            // it goes on from a revision, and has not been told anything since
	// missed is up to where there was something to tell when the feed began behind it.
	missed keepwatch.Revision
}

// Feed begins a watch of the objects at a key or below it. Its errors are those
// which a watch tells as its only event; but while the storage is not ready or etcd
// is away, or if a parameter is bad, they are the request's. One whose time is over
// before it could begin fails with the context's.
func (s *Storage) Feed(ctx context.Context, key string, options apistorage.ListOptions) (*Feed, error) {
	c, err := s.scope(key, options.Recursive)
	if err != nil {
		return nil, requestError{err}
	}
	revision, err := s.versioner.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return nil, requestError{err}
	}
	if ctx.Err() == nil { // else there is nothing to wait for
		if err := s.readiness(ctx, startPatience); err != nil {
			return nil, requestError{err}
		}
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.WatchList) {
		options.SendInitialEvents = nil
	}
	options.Predicate = defaulted(options.Predicate)
	begin, err := s.beginning(ctx, keepwatch.Revision(revision), options)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx) // which says nothing of etcd
	case err != nil:
		return nil, watchError(err)
	}
	filter, byKey := s.filter(c, options.Predicate)
	f := &Feed{
		storage: s, scope: c, options: options,
		cursor: s.store.Watch(begin.cursor, filter), byKey: byKey,
		stated: begin.state == nil, marked: begin.marked,
		resumed: begin.state == nil && revision > 0,
	}
	if begin.state == nil {
		f.missed = s.store.Snapshot().Revision()
	} else {
		f.state = slices.Collect(c.segments(begin.state, ""))
	}
	return f, nil
}

// requestError is what a watch fails with before it begins.
type requestError struct{ error }

func (e requestError) Unwrap() error { return e.error }

// Revision is up to where everything was told, once the state that the feed began
// with was.
func (f *Feed) Revision() keepwatch.Revision { return f.cursor.Cursor().Revision }

// Initial reports whether the state that the feed began with is still to be told.
func (f *Feed) Initial() bool { return !f.stated }

// Initialized reports whether all was told that there was when the feed began: the
// state, or what had come since the revision that it goes on from.
func (f *Feed) Initialized() bool {
	return (f.stated || len(f.state) == 0 && !f.marked) && f.Revision() >= f.missed
}

// Bookmarks reports whether who asked for the feed wants bookmarks.
func (f *Feed) Bookmarks() bool {
	return f.options.Predicate.AllowWatchBookmarks || f.options.ProgressNotify
}

// Bookmark tells how far the feed has come.
func (f *Feed) Bookmark() Event { return Event{Type: watch.Bookmark, Revision: f.Revision()} }

// Poll tells what is next without blocking: no more than a segment of the state that
// the feed began with, or one delivery of the store. While there are events there
// may be more at once; when there are none, it is worth another try as soon as newer
// is closed. An error ends the feed: events that come with it are told first.
func (f *Feed) Poll() (events []Event, newer <-chan struct{}, err error) {
	if !f.stated {
		for len(f.state) > 0 {
			if events, err = f.initial(); err != nil || len(events) > 0 {
				return events, nil, err
			}
		}
		f.stated = true
		if f.marked {
			return []Event{{Type: watch.Bookmark, Revision: f.Revision(), InitialEnd: true}}, nil, nil
		}
	}
	for {
		initial := !f.Initialized()
		delivery, newer, err := f.cursor.Poll()
		f.resume(delivery, err)
		if err != nil {
			return nil, nil, f.failure(err)
		}
		if delivery == nil {
			return nil, newer, nil
		}
		events, err = f.tell(delivery)
		if initial {
			f.storage.meter.initial(len(events))
		}
		if err != nil || len(events) > 0 {
			return events, nil, err
		}
	}
}

// resume counts what a feed that goes on from a revision is told first.
func (f *Feed) resume(d keepwatch.Delivery, err error) {
	if !f.resumed {
		return
	}
	f.resumed = false
	gap, isGap := d.(keepwatch.Gap)
	switch {
	case err != nil || isGap && !follows(gap):
		f.storage.meter.resumed(gone)
	case isGap:
		f.storage.meter.resumed(difference)
	default:
		f.storage.meter.resumed(exact)
	}
}

// follows reports whether the revisions of a gap go on from the feed's.
func follows(gap keepwatch.Gap) bool { return gap.Reason != keepwatch.GapRewind }

// initial tells the next segment of the state that the feed began with.
func (f *Feed) initial() ([]Event, error) {
	segment := f.state[0]
	f.state = f.state[1:]
	events := make([]Event, 0, segment.Len())
	for o := range segment.All() {
		known, err := f.storage.Read(o)
		if err != nil {
			return events, f.unreadable(o.Key(), watch.Added, err)
		}
		if known.matches(f.options.Predicate) {
			events = append(events, Event{Type: watch.Added, Object: known, Revision: known.Revision()})
		}
	}
	f.storage.meter.initial(len(events))
	return events, nil
}

// tell tells what the store delivers.
func (f *Feed) tell(d keepwatch.Delivery) ([]Event, error) {
	switch d := d.(type) {
	case keepwatch.Batch:
		if d.Bookmark() && f.options.ProgressNotify {
			return []Event{f.Bookmark()}, nil
		}
		return f.changes(d.Changes)
	case keepwatch.Gap:
		if !follows(d) {
			f.storage.meter.expired()
			return nil, errBehind
		}
		return f.changes(resumable(d))
	}
	return nil, nil
}

func (f *Feed) changes(changes []keepwatch.Change) ([]Event, error) {
	events := make([]Event, 0, len(changes))
	for _, c := range changes {
		if !f.scope.covers(c.Object.Key()) {
			continue
		}
		known, err := f.storage.Read(c.Object)
		kind := watch.EventType(c.Type.String())
		if err != nil {
			return events, f.unreadable(c.Object.Key(), kind, err)
		}
		events = append(events, Event{Type: kind, Object: known, Revision: c.Revision})
	}
	return events, nil
}

// resumable puts the changes of a gap in an order in which a reader that has seen
// some of them, and goes on from the revision of the last one, is told the others:
// by revision, a deletion before what was created in its place. Deletions that share a
// revision, since a list showed them, move the reader there with the last one only.
func resumable(gap keepwatch.Gap) []keepwatch.Change {
	changes := slices.Clone(gap.Changes)
	created := map[keepwatch.Key]keepwatch.Revision{}
	for _, c := range changes {
		if c.Type == keepwatch.Added {
			created[c.Object.Key()] = c.Revision
		}
	}
	for i := range changes {
		if c := &changes[i]; c.Type == keepwatch.Deleted && created[c.Object.Key()] > 0 {
			c.Revision = min(c.Revision, created[c.Object.Key()])
		}
	}
	slices.SortStableFunc(changes, func(a, b keepwatch.Change) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(order(a), order(b)))
	})
	told := gap.From
	for i := range changes {
		c := &changes[i]
		if more := i+1 < len(changes) && changes[i+1].Revision == c.Revision; !more {
			told = max(told, c.Revision)
		} else if c.Type == keepwatch.Deleted {
			c.Revision = told
		}
	}
	return changes
}

// order is that of changes at one revision.
func order(c keepwatch.Change) int {
	if c.Type == keepwatch.Deleted {
		return 0
	}
	return 1
}

// failure words the end of a feed that the store can't continue.
func (f *Feed) failure(err error) error {
	var unreadable *store.Unreadable
	var failure *keepwatch.Failure
	switch {
	case errors.As(err, &unreadable):
		c := unreadable.Change
		return f.unreadable(c.Object.Key(), watch.EventType(c.Type.String()), unreadable.Err)
	case errors.As(err, &failure) && failure.Kind == keepwatch.Expired:
		f.storage.meter.expired()
		return apierrors.NewResourceExpired(failure.Error())
	}
	return err
}

// errUnjudged is the end of a feed whose selector would have to judge an object that can't
// be read. It does not name the object, which the selector may hide.
var errUnjudged = errors.New("an object that the selector has to judge can't be read")

// unreadable words the end of a feed at an event of an object that can't be read.
func (f *Feed) unreadable(key keepwatch.Key, kind watch.EventType, err error) error {
	if !f.byKey {
		klog.V(2).InfoS("Watch with a selector ends", "resource", f.storage.config.GroupResource, "key", key, "err", err)
		err = errUnjudged
	}
	if kind == watch.Deleted {
		return unreadDeletion(err)
	}
	return err
}
