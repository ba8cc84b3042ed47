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

	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// maxTouched bounds the subjects whose changes of bindings are remembered: who may write bindings chooses their names.
	maxTouched = 100_000
	// maxMoved bounds the namespaces that have come or gone and are decided about alone. Beyond it, all are.
	maxMoved = 30
)

// ErrBusy is why there is no view: too many others are in use.
var ErrBusy = errors.New("too many personal views are in use")

// Cluster is what views know of the server's namespaces and roles. Its methods are safe for concurrent use.
type Cluster interface {
	// Namespaces returns the UIDs of the namespaces by their names, which are not changed. It fails while they are not
	// known.
	Namespaces() (map[string]keepwatch.UID, error)
	// Roles returns the bindings of the cluster. While their changes are not seen, those are the last that were seen, or
	// nil after a time.
	Roles() (roles *Roles, seen bool)
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
	sets    sets
	counts  counts
	marks   marks

	mu       sync.Mutex
	most     int // maxViews, but in tests
	all      map[key]*View
	shares   shares
	affected map[string]map[*View]struct{} // by the subjects of bindings that apply to their users
	touched  map[string]time.Time          // when bindings of a subject have changed last
	anybody  time.Time                     // when those of anybody may have
	forgot   time.Time                     // when the changes of long ago were forgotten
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
		all: map[key]*View{}, shares: shares{byName: map[string]*holder{}}, affected: map[string]map[*View]struct{}{},
		touched: map[string]time.Time{}, anybody: time.Now(), marks: marks{all: map[schema.GroupResource][]mark{}},
	}
	v.counts = newCounts(registry, v)
	return v
}

func (v *Views) len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.all)
}

// WriteUser writes all of a user that a decision may depend on. Groups are a set, and may be named in any order. The
// values of an extra field are a list: a webhook, or an expression of the server's configuration, may judge by the
// first of them. Strings are quoted, so that no value of one field reads as another field.
func WriteUser(h io.Writer, u user.Info) {
	groups := slices.Compact(slices.Sorted(slices.Values(u.GetGroups())))
	fmt.Fprintf(h, "%q %q %q", u.GetName(), u.GetUID(), groups)
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

// hold returns the views of some subjects, all or none, which are in use until release. They are those of one reading,
// and need not be decided yet.
// It fails with ErrBusy if there are too many views, and not as many yield.
func (v *Views) hold(subjects ...Subject) ([]*View, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var held, begun, yielded []*View
	replaced := &announcements{pending: make(chan struct{})}
	for _, s := range subjects {
		if view := v.all[keyOf(s)]; view != nil {
			replaced = view.replaced
		}
	}
	for _, s := range subjects {
		view := v.all[keyOf(s)]
		if view == nil {
			view = v.newView(s, replaced)
			begun = append(begun, view)
		} else {
			v.use(view, 1)
		}
		held = append(held, view)
	}
	for i, view := range begun {
		if len(v.all)+i-len(yielded) >= v.most {
			yields := v.shares.yielding(view, time.Now())
			if yields == nil {
				v.undo(held, begun[:i], yielded)
				return nil, ErrBusy
			}
			v.shares.remove(yields)
			yielded = append(yielded, yields)
		}
		v.shares.add(view)
	}
	for _, view := range yielded {
		v.drop(view)
	}
	for _, view := range begun {
		v.all[view.key] = view
		v.use(view, 1)
		for _, subject := range subjectsOf(view.subject.User) {
			if v.affected[subject] == nil {
				v.affected[subject] = map[*View]struct{}{}
			}
			v.affected[subject][view] = struct{}{}
		}
	}
	return held, nil
}

// undo undoes what hold has begun. v.mu is locked.
func (v *Views) undo(held, begun, yielded []*View) {
	v.counts.refused.Inc()
	for _, view := range begun {
		v.shares.remove(view)
	}
	for _, view := range yielded {
		v.shares.add(view)
		v.shares.use(view, view.inUse())
	}
	for _, view := range held {
		if v.all[view.key] == view {
			v.use(view, -1)
		}
	}
}

func (v *Views) newView(s Subject, replaced *announcements) *View {
	first := v.firstEpoch(s.User)
	return &View{
		views: v, key: keyOf(s), subject: s, owner: readpath.Flow(s.User), epoch: first, followed: first.settles,
		replaced: replaced, whole: true, woken: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		deciding: make(chan struct{}, 1),
	}
}

// release ends what hold began. If drops, those views that nobody else uses are forgotten, unless they have
// namespaces.
func (v *Views) release(drops bool, held ...*View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, view := range held {
		v.use(view, -1)
		if has, _ := view.Count(); drops && has == 0 && !view.inUse() && v.all[view.key] == view {
			v.forget(view)
		}
	}
}

// use counts the uses of a view. v.mu is locked.
func (v *Views) use(view *View, n int) {
	before := view.inUse()
	if view.uses += n; !view.inUse() {
		view.used = time.Now()
	}
	if before != view.inUse() && v.all[view.key] == view {
		v.shares.use(view, view.inUse())
	}
}

// firstEpoch returns the epoch of a view that begins. v.mu is locked.
func (v *Views) firstEpoch(u user.Info) epoch {
	last := v.anybody
	for _, subject := range subjectsOf(u) {
		if at := v.touched[subject]; at.After(last) {
			last = at
		}
	}
	return changed(last, v.settled)
}

// forget forgets a view. Its watches end. v.mu is locked.
func (v *Views) forget(w *View) {
	v.shares.remove(w)
	v.drop(w)
}

// drop is forget for a view that has no share any more. v.mu is locked.
func (v *Views) drop(w *View) {
	delete(v.all, w.key)
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
	// Each mark that counts is later than what is forgotten by so much that nothing of it was shown any more.
	if now.Sub(v.forgot) > v.MarkEvery() {
		maps.DeleteFunc(v.touched, func(_ string, at time.Time) bool { return now.Sub(at) > (marked+2)*v.MarkEvery() })
		v.forgot = now
	}
	if len(v.touched) > maxTouched {
		v.anybody = now
		clear(v.touched)
	}
}

// Wake lets all views look again when they are to be decided: DecidedFor is shorter than it was. It does not block.
func (v *Views) Wake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, view := range v.all {
		view.wake()
	}
}

// Recheck lets all views be decided again, because some namespaces have come or gone; if none is named, any may have.
// It does not block.
func (v *Views) Recheck(namespaces ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, view := range v.all {
		view.recheck(namespaces)
	}
}
