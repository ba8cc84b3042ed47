package watchcache

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

// errTooOld ends a watch that has missed changes which are no longer known.
var errTooOld = apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.")

// Watch is an open watch. Its owner calls TryNext or Serve. It has no goroutine, needs no closing, and
// nothing is queued for it. It is not for concurrent use.
type Watch struct {
	cache     *Cache
	scope     scope
	options   apistorage.ListOptions
	predicate predicate
	watcher   *store.Watcher
	byKey     bool            // the filter depends on keys only
	state     []store.Segment // the initial state that is not delivered yet
	stated    bool            // all of it is delivered
	bookmark  bool            // a bookmark marks its end
	resumed   bool            // the watch resumes from a revision, and has delivered nothing
	// missed is the revision up to which there were changes when the watch began behind them.
	missed keepwatch.Revision
	sent   keepwatch.Revision // the newest that its client has: of an event, a bookmark, or the request; 0: none yet
	viewed *viewed            // nil unless the watch is one of a view
	// unshared is true if the last events of TryNext belong to this watch alone.
	unshared bool
}

// Watch begins a watch of the objects at a key or below it. Its errors are:
//   - a [RequestError] while the cache is not ready or the source is unavailable, or if a
//     parameter is invalid: the caller answers the request with its Err;
//   - the context's cause if ctx ended after the cache was ready: the watch ends without events;
//   - any other error, 410 Expired for example: the caller begins the watch and sends the error
//     as its only event.
func (c *Cache) Watch(ctx context.Context, key string, options apistorage.ListOptions) (*Watch, error) {
	return c.watch(ctx, key, options, nil)
}

// watch is Watch, or WatchIn if view is not nil.
func (c *Cache) watch(ctx context.Context, key string, options apistorage.ListOptions, shown View) (*Watch, error) {
	s, err := c.scope(key, options.Recursive)
	if err != nil {
		return nil, RequestError{err}
	}
	revision, err := versioner.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return nil, RequestError{err}
	}
	predicate, err := c.predicateOf(options.Predicate)
	if err != nil {
		return nil, RequestError{err}
	}
	if ctx.Err() == nil { // otherwise there is nothing to wait for
		if err := c.waitUntilReady(ctx, watchStartWait); err != nil {
			return nil, RequestError{err}
		}
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.WatchList) {
		options.SendInitialEvents = nil
	}
	var viewed *viewed
	if shown != nil {
		resumes := keepwatch.Revision(revision)
		if options.SendInitialEvents != nil && *options.SendInitialEvents {
			resumes = 0
		}
		if viewed, s.within, err = newViewed(shown, resumes); err != nil {
			return nil, err
		}
	}
	start, err := c.watchStart(ctx, keepwatch.Revision(revision), options)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx) // err says nothing about the source
	case err != nil:
		return nil, c.watchError(err)
	}
	filter, byKey := c.filter(s, &predicate)
	w := &Watch{
		cache: c, scope: s, options: options, predicate: predicate,
		watcher: c.store.Watch(start.cursor, filter), byKey: byKey,
		stated: start.state == nil, bookmark: start.bookmark,
		resumed: start.state == nil && revision > 0, viewed: viewed,
	}
	if w.resumed {
		w.sent = keepwatch.Revision(revision)
	}
	if start.state == nil {
		w.missed = c.store.Snapshot().Revision()
	} else if !predicate.isEmptyIn(s) {
		w.state = slices.Collect(s.segments(start.state, ""))
	}
	return w, nil
}

// Revision returns the revision up to which all events were delivered. It is meaningful only after
// the initial state was delivered.
func (w *Watch) Revision() keepwatch.Revision { return w.watcher.Cursor().Revision }

// initialized reports whether the watch has delivered what there was when it began: the initial
// state, or the changes since the revision that it resumes from.
func (w *Watch) initialized() bool {
	return (w.stated || len(w.state) == 0 && !w.bookmark) && w.Revision() >= w.missed
}

// wantsBookmarks reports whether the client asked for bookmarks.
func (w *Watch) wantsBookmarks() bool {
	return w.options.Predicate.AllowWatchBookmarks || w.options.ProgressNotify
}

// progress returns the bookmark of the revision that the watch has reached.
func (w *Watch) progress() Event {
	w.sent = max(w.sent, w.Revision())
	return Event{Type: watch.Bookmark, Revision: w.Revision()}
}

// TryNext returns the next events without blocking: at most a segment of the initial state, or one
// delivery of the store. While newer is nil there may be more, also if TryNext returns no events: the watch
// selects none of the segment, and its caller can end it in between. Otherwise there are more as soon as newer is
// closed. An error ends the watch, after the events that TryNext returns with it.
func (w *Watch) TryNext() (events []Event, newer <-chan struct{}, err error) {
	events, err = w.nextOfView()
	w.unshared = !w.stated || len(events) > 0
	if err != nil || len(events) > 0 {
		return events, nil, err
	}
	if !w.stated {
		if len(w.state) > 0 {
			events, err = w.initial()
			return events, nil, err
		}
		w.stated = true
		if w.bookmark {
			end := w.progress()
			end.InitialEnd = true
			return []Event{end}, nil, nil
		}
	}
	for {
		initial := !w.initialized()
		delivery, newer, err := w.watcher.TryNext()
		w.countResumption(delivery, err)
		if err != nil {
			return nil, nil, w.failure(err)
		}
		if delivery == nil {
			w.cache.pace.waits(newer)
			return nil, newer, nil
		}
		events, err = w.eventsOf(delivery)
		if initial {
			w.cache.meter.initial(len(events))
		}
		if err != nil || len(events) > 0 {
			return events, nil, err
		}
	}
}

// countResumption counts what a watch that resumes from a revision receives first.
func (w *Watch) countResumption(d keepwatch.Delivery, err error) {
	if !w.resumed {
		return
	}
	w.resumed = false
	gap, isGap := d.(keepwatch.Gap)
	switch {
	case err != nil || isGap && !continues(gap):
		w.cache.meter.resumed(expired)
	case isGap:
		w.cache.meter.resumed(difference)
	default:
		w.cache.meter.resumed(exact)
	}
}

// continues reports whether the revisions of a gap continue those that the watch delivered. They do not if a list has
// shown another content of an object at a revision that was delivered: its definition has changed. A client that
// received it as an event would resume from that old revision; one that lists receives it.
func continues(gap keepwatch.Gap) bool {
	return gap.Reason != keepwatch.GapRewind && !slices.ContainsFunc(gap.Changes, func(c keepwatch.Change) bool {
		return !isDeletion(c) && c.Object.Revision() <= gap.From
	})
}

// initial returns the events of the next segment of the initial state.
func (w *Watch) initial() ([]Event, error) {
	segment := w.state[0]
	w.state = w.state[1:]
	events, err := w.added(segment)
	if err == nil {
		w.cache.meter.initial(len(events))
	}
	return events, err
}

// added returns the objects of a segment that the watch selects, as events.
func (w *Watch) added(segment store.Segment) ([]Event, error) {
	events := make([]Event, 0, segment.Len())
	for o := range segment.All() {
		cached, err := w.cache.Read(o)
		if err != nil {
			return events, w.unreadable(o.Key(), watch.Added, err)
		}
		if w.cache.watched(cached, &w.predicate) {
			events = append(events, Event{Type: watch.Added, Object: cached, Revision: cached.Revision()})
			w.sent = max(w.sent, cached.Revision())
		}
	}
	return events, nil
}

// eventsOf returns the events of a delivery of the store.
func (w *Watch) eventsOf(d keepwatch.Delivery) ([]Event, error) {
	switch d := d.(type) {
	case keepwatch.Batch:
		events, err := w.changes(separate(d.Changes, cmp.Or(w.sent, d.From)))
		if err == nil && d.Progress() && w.options.ProgressNotify {
			events = append(events, w.progress())
		}
		return events, err
	case keepwatch.Gap:
		if !continues(d) {
			w.cache.meter.expired()
			return nil, w.cache.lost(d)
		}
		return w.gap(d)
	}
	return nil, nil
}

// gap returns the events of a gap, and a bookmark at its end if the client asked for bookmarks: with an earlier
// revision it could not resume. If it has nothing of the client's, only a client that asked for all progress needs one.
func (w *Watch) gap(d keepwatch.Gap) ([]Event, error) {
	d.From = max(d.From, w.sent)
	events, err := w.changes(resumable(d))
	n := len(events)
	switch {
	case err != nil:
		return events, err
	case n == 0 && w.options.ProgressNotify,
		n > 0 && events[n-1].Revision < d.To && w.wantsBookmarks() && w.viewed.isDelivered():
		events = append(events, w.progress())
	}
	return events, nil
}

func (w *Watch) changes(changes []keepwatch.Change) ([]Event, error) {
	events := make([]Event, 0, len(changes))
	for _, c := range changes {
		if !w.scope.covers(c.Object.Key()) {
			continue
		}
		cached, err := w.cache.Read(c.Object)
		kind := watch.EventType(c.Type.String())
		if err != nil {
			return events, w.unreadable(c.Object.Key(), kind, err)
		}
		events = append(events, Event{Type: kind, Object: cached, Revision: c.Revision})
		w.sent = max(w.sent, c.Revision)
	}
	return events, nil
}

// resumable orders the changes of a gap so that a client which has received some of them, and
// resumes from the revision of the last one, at this or another server, receives the others. Deletions
// whose revision is not known, which the gap's end stands for, are first, at the revision that the client
// has: another server may know that they precede every other change. The rest is ordered by revision, a deletion before
// the object that was created in its place. Of deletions that share a revision only the last one moves the client
// there.
func resumable(gap keepwatch.Gap) []keepwatch.Change {
	changes := slices.Clone(gap.Changes)
	for i := range changes {
		if c := &changes[i]; isDeletion(*c) && c.Revision == gap.To {
			c.Revision = gap.From
		}
	}
	slices.SortStableFunc(changes, func(a, b keepwatch.Change) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(order(a), order(b)))
	})
	reached := gap.From
	for i := range changes {
		c := &changes[i]
		if more := i+1 < len(changes) && changes[i+1].Revision == c.Revision; !more {
			reached = max(reached, c.Revision)
		} else if isDeletion(*c) {
			c.Revision = reached
		}
	}
	if last := len(changes) - 1; last >= 0 && reached == gap.From {
		changes[last].Revision = gap.To
	}
	return changes
}

// separate returns the changes of a batch in an order, and at revisions, with which a client that has received some of
// them, and resumes from the revision of the last one, receives the others. The objects of a lease of etcd's, as Events
// have it, are deleted at one revision: all of these deletions but the last change of the revision are sent at the
// revision that the client has, sent or that of the change before. Only a transaction of something else than an API
// server writes several objects at one revision.
func separate(changes []keepwatch.Change, sent keepwatch.Revision) []keepwatch.Change {
	copied := false
	for from := 0; from < len(changes); {
		revision, to := changes[from].Revision, from+1
		for to < len(changes) && changes[to].Revision == revision {
			to++
		}
		if to-from > 1 && slices.ContainsFunc(changes[from:to], isDeletion) {
			if !copied {
				changes, copied = slices.Clone(changes), true
			}
			stay(changes[from:to], sent)
		}
		from, sent = to, revision
	}
	return changes
}

// stay orders changes at one revision, and leaves the client at the revision that it has by the deletions in front of
// others.
func stay(shared []keepwatch.Change, sent keepwatch.Revision) {
	slices.SortStableFunc(shared, func(a, b keepwatch.Change) int { return cmp.Compare(order(a), order(b)) })
	for i := range shared[:len(shared)-1] {
		if isDeletion(shared[i]) {
			shared[i].Revision = sent
		}
	}
}

func isDeletion(c keepwatch.Change) bool { return c.Type == keepwatch.Deleted }

// order returns the rank of a change among those at one revision.
func order(c keepwatch.Change) int {
	if isDeletion(c) {
		return 0
	}
	return 1
}

// failure returns the API's error for a watch that the store can't continue.
func (w *Watch) failure(err error) error {
	var unreadable *store.Unreadable
	var failure *keepwatch.Failure
	switch {
	case errors.As(err, &unreadable):
		c := unreadable.Change
		return w.unreadable(c.Object.Key(), watch.EventType(c.Type.String()), unreadable.Err)
	case errors.As(err, &failure) && failure.Kind == keepwatch.Expired:
		w.cache.meter.expired()
		return apierrors.NewResourceExpired(failure.Error())
	}
	return err
}

// errUnjudged ends a watch whose selector would have to judge an object that can't be read. It
// does not name the object, which the selector may hide.
var errUnjudged = errors.New("an object that the selector must judge can't be read")

// unreadable returns the error that ends the watch at an event whose object can't be decoded.
func (w *Watch) unreadable(key keepwatch.Key, event watch.EventType, err error) error {
	if !w.byKey {
		klog.V(2).InfoS("Watch with a selector ends", "resource", w.cache.config.GroupResource, "key", key, "err", err)
		err = errUnjudged
	}
	return DecodeError(event, err)
}
