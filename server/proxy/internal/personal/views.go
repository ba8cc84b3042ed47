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
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch"
)

const (
	// maxViews bounds the views that are known, and maxOfUser those of one user, who may follow each resource of a
	// cluster, as Argo CD does.
	maxViews, maxOfUser = 10_000, 1_000
	// rememberedFor is how long the time of a change of a subject's bindings is remembered.
	rememberedFor = time.Minute
)

// ErrBusy is why there is no view: too many others are in use.
var ErrBusy = errors.New("too many personal views are in use")

// Cluster is what views know of the server's namespaces and roles. Its methods are safe for concurrent use.
type Cluster interface {
	// Namespaces returns the UIDs of the namespaces by their names. It fails while they are not known.
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
	cluster   Cluster
	reviews   Reviews
	reviewing chan struct{} // the decisions that are being made
	counts    counts

	mu       sync.Mutex
	all      map[key]*View
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

// New returns no views yet.
func New(cluster Cluster, reviews Reviews, registry metrics.KubeRegistry) *Views {
	v := &Views{
		cluster: cluster, reviews: reviews, reviewing: make(chan struct{}, reviewsOfAll), all: map[key]*View{},
		ofUser:   map[string]int{},
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
	return view, view.current(ctx)
}

// of returns the view of a subject, which need not be decided yet.
func (v *Views) of(s Subject) (*View, error) {
	k := keyOf(s)
	v.mu.Lock()
	defer v.mu.Unlock()
	if view := v.all[k]; view != nil {
		view.used = time.Now()
		return view, nil
	}
	name := s.User.GetName()
	if v.ofUser[name] >= maxOfUser && !v.forgetOne(func(w *View) bool { return w.subject.User.GetName() == name }) {
		return nil, ErrBusy
	}
	if len(v.all) >= maxViews && !v.forgetOne(func(*View) bool { return true }) {
		return nil, ErrBusy
	}
	view := &View{views: v, key: k, subject: s, used: time.Now(), replaced: make(chan struct{}), woken: make(chan struct{},
		1)}
	view.epoch = v.firstEpoch(s.User)
	v.all[k] = view
	v.ofUser[name]++
	for _, subject := range subjectsOf(s.User) {
		if v.affected[subject] == nil {
			v.affected[subject] = map[*View]struct{}{}
		}
		v.affected[subject][view] = struct{}{}
	}
	return view, nil
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
		return changed(last)
	}
	return epoch{}
}

// forgetOne forgets the view that was used longest ago, of those without watches for which may is true. It reports
// whether there was one. v.mu is locked.
func (v *Views) forgetOne(may func(*View) bool) bool {
	var oldest *View
	for _, view := range v.all {
		if view.watches == 0 && may(view) && (oldest == nil || view.used.Before(oldest.used)) {
			oldest = view
		}
	}
	if oldest == nil {
		return false
	}
	delete(v.all, oldest.key)
	name := oldest.subject.User.GetName()
	if v.ofUser[name]--; v.ofUser[name] == 0 {
		delete(v.ofUser, name)
	}
	for _, subject := range subjectsOf(oldest.subject.User) {
		if delete(v.affected[subject], oldest); len(v.affected[subject]) == 0 {
			delete(v.affected, subject)
		}
	}
	return true
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
}

// Recheck lets all views be decided again, because the namespaces have changed. It does not block.
func (v *Views) Recheck() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, view := range v.all {
		view.recheck()
	}
}
