package personal

import (
	"container/list"
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

const (
	// undecidedFor is how long a view keeps its set while the server does not decide about it.
	undecidedFor = 10 * time.Second
	// retryAfter is the wait before the server is asked again.
	retryAfter = time.Second
	// apart is the least time between two decisions of a view with watches.
	apart = 300 * time.Millisecond
)

// again is when a view with watches is decided once more after a change of roles: the API server that decides may
// follow the roles later than this process. After that it is decided each second until the change has settled.
const again = 600 * time.Millisecond

// View is what one user may list, or watch, of a resource. It is safe for concurrent use.
type View struct {
	views   *Views
	key     key
	subject Subject
	owner   string        // whose share of views it counts for
	woken   chan struct{} // has room for one

	// views.mu is locked for these.
	holder    *holder            // its user
	place     *list.Element      // in one of the lists of its user
	idle      *list.Element      // in that of all that are not in use; nil while it is
	used      time.Time          // last, while it is not in use
	uses      int                // by readings, and those of them that are open
	reads     int                // of uses, that let the view follow what changes
	end       context.CancelFunc // of the goroutine that follows the view
	following chan struct{}      // closed at its end

	deciding chan struct{} // is full while the server is asked
	changed  chan struct{} // has room for one: a decision that is being made may have to know more

	mu      sync.Mutex
	present *watchcache.Namespaces // nil before the first decision
	of      int                    // how many namespaces there were
	// everywhere is true if the user was allowed in all namespaces at once.
	everywhere bool
	err        error // why the set is not known
	gone       bool  // for ever: nothing reaches the view any more
	replaced   *announcements
	decided    time.Time // when the set was last decided, by decisions that began then
	since      time.Time // when the set was first decided, or replaced
	changes    uint64    // that may change the set
	applied    uint64    // of them, in the set
	failing    time.Time // since when the server does not decide; zero while it does
	// touched is true if bindings have changed since a decision last ended, and rechecked if namespaces have changed and
	// that is not applied.
	touched, rechecked bool
	// whole is true if a decision about all namespaces is due, whenever the next one is; otherwise moved has those that
	// have come or gone since the last one.
	whole bool
	moved map[string]bool
	epoch epoch
	// trusted is when a watch was last continued from a mark.
	trusted time.Time
	// followed is when API servers decide by the last change of bindings. Until then a decision counts for a second.
	followed time.Time
	again    time.Time // when it is decided once more; zero if that is not due
}

// inUse reports whether requests wait for the view, or are answered from it. views.mu is locked.
func (w *View) inUse() bool { return w.uses > 0 }

func (w *View) isRead() bool {
	w.views.mu.Lock()
	defer w.views.mu.Unlock()
	return w.reads > 0
}

// abandoned reports whether nobody has used the view for some time. views.mu is locked.
func (w *View) abandoned(now time.Time) bool { return !w.inUse() && now.Sub(w.used) > abandonedAfter }

// Namespaces returns the present set; see watchcache.View.
func (w *View) Namespaces() (*watchcache.Namespaces, <-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.present, w.replaced.next(), w.err
}

// Count returns how many namespaces the view has, and how many there are.
func (w *View) Count() (has, of int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.present == nil {
		return 0, w.of
	}
	return w.present.Len(), w.of
}

// Resumable returns the present set, and whether all that was sent at a revision was of it; see the package's comment.
// While changes of roles are not seen, another replica may know of some, and have sent another set.
func (w *View) Resumable(from keepwatch.Revision) (present *watchcache.Namespaces, ok bool) {
	if roles, seen := w.views.cluster.Roles(); roles != nil && !seen {
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ok = w.present != nil && w.err == nil && w.epoch.known && from >= w.epoch.floor && w.applied == w.changes
	if ok && w.epoch.marked {
		w.trusted = time.Now()
	}
	return w.present, ok
}

// Agreement is how long another replica may show another set. A watch that was continued from a mark may have been
// continued while changes were not seen: until that is noticed, any change ends it.
func (w *View) Agreement() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.trusts(time.Now()) {
		return w.views.MarkEvery()
	}
	return w.views.settled
}

// trusts reports whether a watch that was continued from a mark may have been continued too early. w.mu is locked.
func (w *View) trusts(now time.Time) bool { return now.Sub(w.trusted) < w.views.MarkEvery() }

// Floor returns the first revision that is resumable, zero while that is not known.
func (w *View) Floor() keepwatch.Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.epoch.floor
}

// touch begins an epoch: the set may change, or have changed and changed back unseen.
func (w *View) touch(now time.Time) {
	w.mu.Lock()
	w.epoch, w.touched, w.whole = changed(now, w.views.settled), true, true
	w.changes++
	w.again, w.followed = now.Add(again), now.Add(w.views.settled)
	// A set as young as this may have known the change, and another replica not yet. One that is older may not: if the
	// change concerns it, it is replaced.
	if now.Sub(w.since) < w.views.settled || w.trusts(now) {
		w.replaced.announce()
	}
	w.mu.Unlock()
	w.wake()
}

// recheck lets the set be decided again, because some namespaces have come or gone; if none is named, any may have.
func (w *View) recheck(namespaces []string) {
	w.mu.Lock()
	w.whole = w.whole || len(namespaces) == 0 || len(w.moved)+len(namespaces) > maxMoved || w.expired()
	moved := map[string]bool{} // another one: a decision that is being made has the last one
	maps.Copy(moved, w.moved)
	for _, namespace := range namespaces {
		moved[namespace] = true
	}
	if w.moved = moved; w.whole {
		w.moved = nil
	}
	w.rechecked = true
	w.changes++
	w.mu.Unlock()
	w.wake()
}

// onlyMoved returns the namespaces that have come or gone, if a decision about those is enough, nil otherwise. w.mu is
// locked.
func (w *View) onlyMoved() map[string]bool {
	if w.whole || w.err != nil || !w.failing.IsZero() || w.expired() {
		return nil
	}
	return w.moved
}

func (w *View) wake() {
	for _, to := range []chan<- struct{}{w.woken, w.changed} {
		select {
		case to <- struct{}{}:
		default:
		}
	}
}

// current waits until the set is decided, as of a time after the call, or after the last change. It does not wait until
// a change during the decision is applied: changes without an end would keep it waiting.
func (w *View) current(ctx context.Context) error {
	if w.fresh() {
		return nil
	}
	if err := w.decide(ctx, false); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return ErrBusy
	}
	return nil
}

func (w *View) fresh() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.present != nil && w.err == nil && w.applied == w.changes && !w.expired()
}

// expired reports whether the set has been used for as long as it may. w.mu is locked.
func (w *View) expired() bool { return time.Since(w.decided) >= w.lifetime() }

// lifetime is how long the set is used. Within the time that a change of bindings takes to settle it is short, as that
// of each decision. w.mu is locked.
func (w *View) lifetime() time.Duration {
	if time.Now().Before(w.followed.Add(time.Second)) {
		return time.Second
	}
	return w.views.cluster.DecidedFor()
}

// decide asks the server about each namespace that may be in the set, and replaces the set. Unless it is for open
// watches, a set that has become fresh meanwhile is enough. What a list decides beside open watches is for them, too:
// a decision that did not wait for its turn would be one that the server does not make, and the watches would end.
func (w *View) decide(ctx context.Context, open bool) error {
	select {
	case w.deciding <- struct{}{}:
		defer func() { <-w.deciding }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !open && w.fresh() {
		return nil
	}
	err := w.countsDenials(ctx)
	if err == nil {
		err = newRun(w, open || w.isRead()).decide(ctx)
	}
	if err != nil && ctx.Err() == nil {
		w.fail(err)
	}
	return err
}

// countsDenials returns why the server's denials do not count for a set that is not known yet, nil if they do: a server
// that starts denies a part of what it will allow. That its roles are followed says that it does not start. A denial
// of what is shown is confirmed by itself.
func (w *View) countsDenials(ctx context.Context) error {
	_, seen := w.views.cluster.Roles()
	if present, _, err := w.Namespaces(); present != nil && err == nil || seen {
		return nil
	}
	return w.views.reviews.Ready(ctx)
}

// show replaces the set by one that is decided as of some of the changes, by decisions that began at a time. A set
// that changes by bindings alone, and was decided when their change had settled, is that of their epoch, unless another
// decision has ended since: what was listed with its set is of the epoch, too. w.mu is locked.
func (w *View) show(set *watchcache.Namespaces, began time.Time, applied uint64) {
	before := w.present
	if w.gone || before != nil && w.err == nil && set.Equal(before) {
		return
	}
	if before != nil {
		if !w.touched || w.rechecked || applied != w.changes || began.Before(w.epoch.settles) {
			w.epoch = changed(time.Now(), w.views.settled)
		}
		w.views.counts.replaced.Inc()
	}
	w.present, w.since, w.err = set, time.Now(), nil
	w.replaced.announce()
}

// announcements let watches look at their sets again. The views of a reading have the same ones: a watch that has
// resumed a moment ago ends when its client may have listed another set elsewhere.
type announcements struct {
	mu      sync.Mutex
	pending chan struct{}
}

// next returns the channel that is closed by the next one.
func (a *announcements) next() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending
}

func (a *announcements) announce() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.pending)
	a.pending = make(chan struct{})
}

// fail records that the server does not decide. After undecidedFor the set is not known any more.
func (w *View) fail(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.failing.IsZero() {
		w.failing = now
	}
	if w.err == nil && now.Sub(w.failing) >= undecidedFor {
		klog.V(2).InfoS("A personal view is not decided", "user", w.subject.User.GetName(), "resource", w.subject.Resource,
			"err", cause)
		w.err = errUndecided
		w.replaced.announce()
	}
}

// giveUp ends the watches of a view that is forgotten, and what follows it. views.mu is locked.
func (w *View) giveUp() {
	if w.reads > 0 {
		w.end()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone, w.err = true, errGivenUp
	w.replaced.announce()
}

// errGivenUp is why a view has no set any more. A client continues its watch later.
var errGivenUp = apierrors.NewTooManyRequests(ErrBusy.Error(), 1)

// errUndecided is why a view has no set.
var errUndecided = apierrors.NewServiceUnavailable("the API server does not decide in which namespaces this is allowed")

// Settle asks for the first revision of the set if that is due. Without it no watch can resume. For a view that begins
// it is the newest one, since what was sent before may have been of another set, but if the set can only have changed
// by bindings, and they have not changed since long before an earlier one.
func (w *View) Settle(ctx context.Context, newest Newest) {
	w.mu.Lock()
	before, isOfBindings := w.epoch, w.isOfBindings()
	w.mu.Unlock()
	if !before.due(time.Now()) {
		return
	}
	asked := time.Now()
	revision, err := newest(ctx)
	if err != nil {
		return
	}
	m, ok := w.views.first(w.subject.Resource.GroupResource(), before.settles.Add(w.views.MarkEvery()))
	if ok && isOfBindings && m.newest <= revision { // not of a storage that was restored since
		revision, asked = m.newest, m.at
	} else {
		ok = false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epoch == before {
		w.epoch = before.with(revision, asked)
		w.epoch.marked = ok
	}
}

// Open lets the view be decided again whenever that is due, until close is called: while a list or a watch of it is
// answered. It fails with ErrBusy if the view has been forgotten since the request received it: changes do not reach
// it any more. What follows the view ends soon after the last close, which does not wait for a decision that is being
// made: the client would.
func (w *View) Open(newest Newest) (closed func(), err error) {
	w.views.mu.Lock()
	defer w.views.mu.Unlock()
	if w.views.all[w.key] != w {
		return nil, ErrBusy
	}
	w.views.use(w, 1)
	if w.reads++; w.reads == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		before, ended := w.following, make(chan struct{})
		w.end, w.following = cancel, ended
		go func() {
			defer close(ended)
			if before != nil {
				<-before
			}
			w.follow(ctx, newest)
		}()
	}
	return func() {
		w.views.mu.Lock()
		defer w.views.mu.Unlock()
		w.views.use(w, -1)
		if w.reads--; w.reads == 0 {
			w.end()
		}
	}, nil
}

// follow decides again whenever that is due, until ctx ends.
func (w *View) follow(ctx context.Context, newest Newest) {
	for ctx.Err() == nil {
		at, decides := w.next(time.Now())
		switch {
		case !decides && at.IsZero():
			w.Settle(ctx, newest)
			sleep(ctx, retryAfter, nil) // the server may not answer
		case decides && at.IsZero():
			wait := apart
			if w.decide(ctx, true) != nil {
				wait = retryAfter
			}
			sleep(ctx, wait, nil)
		default:
			sleep(ctx, time.Until(at), w.woken)
		}
	}
}

// next returns when something is due, zero for now, and whether that is a decision; otherwise it is the floor of the
// epoch.
func (w *View) next(now time.Time) (at time.Time, decides bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lifetime := w.lifetime()
	at = w.decided.Add(lifetime + lifetime*time.Duration(w.key.user[0])/1024) // many begin together
	if w.applied != w.changes || !w.failing.IsZero() {
		return time.Time{}, true
	}
	if !w.again.IsZero() && w.again.Before(at) {
		at = w.again
	}
	if !at.After(now) {
		if !w.again.After(now) {
			w.again = time.Time{}
		}
		w.whole = true
		return time.Time{}, true
	}
	if w.epoch.due(now) {
		return time.Time{}, false
	}
	if !w.epoch.known && w.epoch.settles.Before(at) {
		at = w.epoch.settles
	}
	return at, false
}

// sleep waits for some time, or until woken.
func sleep(ctx context.Context, d time.Duration, woken <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
	}
}
