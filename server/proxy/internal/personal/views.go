package personal

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/readpath"
)

const (
	// maxViews bounds the views that are known.
	maxViews = 10_000
	// abandonedAfter is how long a view must not have been used to be forgotten for anybody's: until then its client may
	// be about to watch from the revision of a list.
	abandonedAfter = time.Minute
	// rememberedFor is how long the time of a change of a subject's bindings is remembered, and maxTouched bounds the
	// subjects: who may write bindings chooses their names.
	rememberedFor, maxTouched = time.Minute, 100_000
)

// ErrBusy is why there is no view: too many others are in use.
var ErrBusy = errors.New("too many personal views are in use")

// Cluster is what views know of the server's namespaces and roles. Its methods are safe for concurrent use.
type Cluster interface {
	// Namespaces returns the UIDs of the namespaces by their names, which are not changed. It fails while they are not
	// known.
	Namespaces() (map[string]keepwatch.UID, error)
	// Roles returns the bindings of the cluster, nil while their changes are not seen.
	Roles() *Roles
	// DecidedFor is how long a decision is used while nothing changes.
	DecidedFor() time.Duration
}

// Newest returns the newest revision of a resource's storage, as of a time after the call.
type Newest func(context.Context) (keepwatch.Revision, error)

// Views are the personal views of all users. It is safe for concurrent use.
type Views struct {
	cluster Cluster
	reviews Reviews
	settled time.Duration // Settled, but in tests
	asking  atomic.Int64  // decisions that are being made
	askers  *askers
	counts  counts

	mu       sync.Mutex
	most     int // maxViews, but in tests
	all      map[key]*View
	ofOwner  map[string]int                // how many, by owner: readpath.Flow
	ofUser   map[string]int                // how many, by user
	affected map[string]map[*View]struct{} // by the subjects of bindings that apply to their users
	touched  map[string]time.Time          // when bindings of a subject have changed last
	anybody  time.Time                     // when those of anybody may have
}

// key identifies a view. The digest is the user's: its name, UID, groups and extra fields.
type key struct {
	user    [sha256.Size]byte
	subject string
}

// New returns no views yet. settled is [Settled], but in tests.
func New(cluster Cluster, reviews Reviews, registry metrics.KubeRegistry, settled time.Duration) *Views {
	v := &Views{
		cluster: cluster, reviews: reviews, settled: settled, askers: newAskers(), most: maxViews,
		all: map[key]*View{}, ofOwner: map[string]int{}, ofUser: map[string]int{},
		affected: map[string]map[*View]struct{}{}, touched: map[string]time.Time{}, anybody: time.Now(),
	}
	v.counts = newCounts(registry, v)
	return v
}

func (v *Views) len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.all)
}

// WriteUser writes all of a user that a decision may depend on. Strings are quoted, so that no value of one field reads
// as another field.
func WriteUser(h io.Writer, u user.Info) {
	fmt.Fprintf(h, "%q %q %q", u.GetName(), u.GetUID(), u.GetGroups())
	extra := u.GetExtra()
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		fmt.Fprintf(h, " %q %q", name, extra[name])
	}
}

// keyOf returns the key of a subject.
func keyOf(s Subject) key {
	h := sha256.New()
	WriteUser(h, s.User)
	return key{[sha256.Size]byte(h.Sum(nil)), fmt.Sprintf("%q %q %q %q", s.Verb, s.Resource.Group, s.Resource.Version,
		s.Resource.Resource)}
}

// Of returns the view of a subject, as of a time after the call. It fails if the server does not decide about each of
// the namespaces that may be in it, and with ErrBusy if there are too many views.
func (v *Views) Of(ctx context.Context, s Subject) (*View, error) {
	view, err := v.of(s)
	if err != nil {
		return nil, err
	}
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		view.asked--
		view.used = time.Now()
	}()
	return view, view.current(ctx)
}

// Release forgets a view that nobody uses. Who may read nowhere needs none, and would have one for each name of a
// resource that it makes up.
func (v *Views) Release(view *View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !view.inUse() && v.all[view.key] == view {
		v.forget(view)
	}
}

// of returns the view of a subject, which need not be decided yet. The caller counts view.asked down.
func (v *Views) of(s Subject) (*View, error) {
	k := keyOf(s)
	v.mu.Lock()
	defer v.mu.Unlock()
	if view := v.all[k]; view != nil {
		view.asked++
		return view, nil
	}
	view := &View{
		views: v, key: k, subject: s, owner: readpath.Flow(s.User), asked: 1, replaced: make(chan struct{}),
		woken: make(chan struct{}, 1), changed: make(chan struct{}, 1), deciding: make(chan struct{}, 1),
	}
	if len(v.all) >= v.most && !v.makeRoom(view) {
		v.counts.refused.Inc()
		return nil, ErrBusy
	}
	view.epoch = v.firstEpoch(s.User)
	v.all[k] = view
	v.count(view, 1)
	for _, subject := range subjectsOf(s.User) {
		if v.affected[subject] == nil {
			v.affected[subject] = map[*View]struct{}{}
		}
		v.affected[subject][view] = struct{}{}
	}
	return view, nil
}

// count adds to the views of a view's owner and user. v.mu is locked.
func (v *Views) count(of *View, n int) {
	add := func(to map[string]int, name string) {
		if to[name] += n; to[name] == 0 {
			delete(to, name)
		}
	}
	add(v.ofOwner, of.owner)
	add(v.ofUser, of.subject.User.GetName())
}

// firstEpoch returns the epoch of a view that begins. v.mu is locked.
func (v *Views) firstEpoch(u user.Info) epoch {
	last := v.anybody
	for _, subject := range subjectsOf(u) {
		if at := v.touched[subject]; at.After(last) {
			last = at
		}
	}
	if time.Since(last) < quiet {
		return changed(last, v.settled)
	}
	return epoch{}
}

// makeRoom forgets a view in place of a new one, and reports whether there was one to forget: one that nobody has used
// for some time; or else one of the owner with most views, and of its users the one with most, if the new view's has
// fewer. So each owner has a share, and each of its users a part of that: watches end of those above it. The user with
// most views may only replace views that it does not use. v.mu is locked.
func (v *Views) makeRoom(newer *View) bool {
	now := time.Now()
	var found *View
	var last [5]int64
	for _, w := range v.all {
		if !v.yields(w, newer, now) {
			continue
		}
		if rank := v.rank(w, now); found == nil || slices.Compare(rank[:], last[:]) > 0 {
			found, last = w, rank
		}
	}
	if found != nil {
		v.forget(found)
	}
	return found != nil
}

// yields reports whether a view may be forgotten for a new one. v.mu is locked.
func (v *Views) yields(w, to *View, now time.Time) bool {
	user, newUser := w.subject.User.GetName(), to.subject.User.GetName()
	switch {
	case w.abandoned(now), !w.inUse() && user == newUser:
		return true
	case w.owner != to.owner:
		return v.ofOwner[w.owner] > v.ofOwner[to.owner]+1
	}
	return v.ofUser[user] > v.ofUser[newUser]+1
}

// rank orders the views that may be forgotten: the highest is first. v.mu is locked.
func (v *Views) rank(w *View, now time.Time) (r [5]int64) {
	if w.abandoned(now) {
		r[0] = 1
	} else {
		r[1], r[2] = int64(v.ofOwner[w.owner]), int64(v.ofUser[w.subject.User.GetName()])
	}
	if !w.inUse() {
		r[3] = 1
	}
	r[4] = int64(now.Sub(w.used))
	return r
}

// forget forgets a view. Its watches end. v.mu is locked.
func (v *Views) forget(w *View) {
	delete(v.all, w.key)
	v.count(w, -1)
	for _, subject := range subjectsOf(w.subject.User) {
		if delete(v.affected[subject], w); len(v.affected[subject]) == 0 {
			delete(v.affected, subject)
		}
	}
	why := "unused"
	if w.inUse() {
		why = "share"
		w.giveUp()
	}
	v.counts.forgotten.WithLabelValues(why).Inc()
}

// Touch lets the views of some subjects be decided again, because roles or bindings have changed that concern them;
// those of all subjects if ok is false. It does not block.
func (v *Views) Touch(subjects map[string]bool, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if !ok {
		v.anybody = now
		for _, view := range v.all {
			view.touch(now)
		}
		return
	}
	touched := map[*View]struct{}{}
	for subject := range subjects {
		v.touched[subject] = now
		maps.Copy(touched, v.affected[subject])
	}
	for view := range touched {
		view.touch(now)
	}
	maps.DeleteFunc(v.touched, func(_ string, at time.Time) bool { return now.Sub(at) > rememberedFor })
	if len(v.touched) > maxTouched {
		v.anybody = now
		clear(v.touched)
	}
}

// Recheck lets all views be decided again, because the namespaces have changed. It does not block.
func (v *Views) Recheck() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, view := range v.all {
		view.recheck()
	}
}
