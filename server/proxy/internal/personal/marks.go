package personal

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/keepwatch/keepwatch"
)

const (
	// agreed is how many times longer than [Settled] it takes until all replicas show the same, also one whose watch of
	// roles hangs: five minutes. Revisions are marked as often.
	agreed = 60
	// marked is how many marks of a resource count: those of an hour.
	marked = 12
)

// marks are the newest revisions of resources at some times of the last hour. What was sent at a higher revision was
// sent later. It is safe for concurrent use.
type marks struct {
	mu  sync.Mutex
	all map[schema.GroupResource][]mark
}

// mark is the newest revision of a resource as of a time.
type mark struct {
	at     time.Time
	newest keepwatch.Revision
}

// MarkEvery is how often Mark is called for each resource of which there are views.
func (v *Views) MarkEvery() time.Duration { return agreed * v.settled }

// Mark remembers the newest revision of a resource.
func (v *Views) Mark(ctx context.Context, of schema.GroupResource, newest Newest) {
	m, now := &v.marks, mark{at: time.Now()}
	m.mu.Lock()
	last := m.all[of]
	m.mu.Unlock()
	if n := len(last); n > 0 && now.at.Sub(last[n-1].at) < v.MarkEvery()/2 { // of another representation
		return
	}
	var err error
	if now.newest, err = newest(ctx); err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[of] = append(last[max(0, len(last)-marked+1):len(last):len(last)], now)
}

// first returns the first mark that counts from a time on.
func (v *Views) first(of schema.GroupResource, from time.Time) (first mark, ok bool) {
	v.marks.mu.Lock()
	defer v.marks.mu.Unlock()
	if last := time.Now().Add(-marked * v.MarkEvery()); from.Before(last) {
		from = last
	}
	all := v.marks.all[of]
	i := slices.IndexFunc(all, func(m mark) bool { return !m.at.Before(from) })
	if i < 0 {
		return mark{}, false
	}
	return all[i], true
}

// isOfBindings reports whether a set can have changed by bindings alone before its view began, whose changes are
// remembered. A service account is always in the same groups, whatever token it has; another user may have been in
// others. Namespaces that come and go change what is allowed in all of them, and which names of namespaces there are.
// w.mu is locked.
func (w *View) isOfBindings() bool {
	return isServiceAccount(w.subject.User) && !w.subject.ofNamespaces() && !w.everywhere && !w.views.reviews.BeyondRoles()
}

// isServiceAccount reports whether a user is a service account, and in the groups of one alone.
func isServiceAccount(u user.Info) bool {
	namespace, _, err := serviceaccount.SplitUsername(u.GetName())
	if err != nil {
		return false
	}
	always := append(serviceaccount.MakeGroupNames(namespace), user.AllAuthenticated)
	slices.Sort(always)
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(u.GetGroups()))), always)
}
