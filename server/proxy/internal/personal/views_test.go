package personal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// world is a server that the test controls: its namespaces, its decisions, and the bindings that are followed.
type world struct {
	testing.TB
	views    *Views
	roles    *Roles
	registry metrics.KubeRegistry

	mu       sync.Mutex
	uids     map[string]keepwatch.UID
	allowed  map[string]bool // user/namespace
	revision keepwatch.Revision
	bindings keepwatch.Revision
	fails    bool
	asked    map[string]int // user/namespace; the namespace is empty for all of them
	beyond   bool
	unseen   bool  // changes of roles are not seen
	unready  error // the server starts
	inFlight atomic.Int64
	most     atomic.Int64
	takes    time.Duration
	lifetime time.Duration
	now      map[string]int // in flight, by user
}

// newWorld returns one in which no binding has changed for some time.
func newWorld(t *testing.T, namespaces ...string) *world {
	w := youngWorld(t, namespaces...)
	time.Sleep(quiet + time.Second)
	return w
}

func youngWorld(t testing.TB, namespaces ...string) *world {
	w := &world{TB: t, uids: map[string]keepwatch.UID{}, allowed: map[string]bool{}, revision: 100,
		asked: map[string]int{}, now: map[string]int{}, lifetime: 2 * time.Minute}
	w.roles = &Roles{store.New(store.Options{}), store.New(store.Options{}), store.New(store.Options{})}
	for _, bindings := range []*store.Store{w.roles.Bindings, w.roles.ClusterBindings} {
		if err := Index(bindings); err != nil {
			t.Fatal(err)
		}
	}
	list, err := w.roles.Bindings.Replace(t.Context(), keepwatch.Relist{})
	if err == nil {
		err = list.Commit(t.Context(), 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.bindings = 1
	for _, n := range namespaces {
		w.uids[n] = keepwatch.UID(n + "-1")
	}
	w.registry = metrics.NewKubeRegistry()
	w.views = New(w, w, w.registry, Settled)
	return w
}

func (w *world) Namespaces() (map[string]keepwatch.UID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.uids), nil
}

func (w *world) Roles() (roles *Roles, seen bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.roles, !w.unseen
}

func (w *world) Ready(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unready
}

func (w *world) DecidedFor() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lifetime
}

func (w *world) BeyondRoles() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.beyond
}

func (w *world) Decide(_ context.Context, a authorizer.Attributes, _ bool) (bool, error) {
	w.most.Store(max(w.most.Load(), w.inFlight.Add(1)))
	defer w.inFlight.Add(-1)
	user := a.GetUser().GetName()
	var takes time.Duration
	w.set(func() { w.now[user]++; takes = w.takes })
	defer w.set(func() { w.now[user]-- })
	time.Sleep(takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	about := user + "/" + a.GetNamespace()
	w.asked[about]++
	if w.fails {
		return false, errors.New("no decision")
	}
	return w.allowed[about], nil
}

func (w *world) Confirm(ctx context.Context, a authorizer.Attributes, open bool) (bool, error) {
	return w.Decide(ctx, a, open)
}

func (w *world) newest(context.Context) (keepwatch.Revision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision, nil
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// times returns how often the server was asked about a user in a namespace.
func (w *world) times(about string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[about]
}

// binding is a binding that is followed.
type binding struct {
	key      keepwatch.Key
	revision keepwatch.Revision
	grant    *Grant
}

func (b binding) Key() keepwatch.Key           { return b.key }
func (b binding) UID() keepwatch.UID           { return keepwatch.UID(b.key.String()) }
func (b binding) Revision() keepwatch.Revision { return b.revision }
func (b binding) Grant() *Grant                { return b.grant }

// bind binds a user in a namespace, or undoes that, and lets the server allow that or not. The views learn of it.
func (w *world) bind(name, namespace string, bound bool) {
	w.Helper()
	w.set(func() { w.allowed[name+"/"+namespace] = bound })
	w.bindAs(name, userPrefix+name, namespace, bound)
}

// bindAs binds a subject in a namespace, or undoes that. The views learn of it.
func (w *world) bindAs(name, subject, namespace string, bound bool) {
	w.Helper()
	g := &Grant{Subjects: []string{subject}, Role: namespace + "/reader"}
	if !bound {
		g = nil
	}
	w.views.Touch(w.roles.Touched([]keepwatch.Change{w.apply(keepwatch.Key{Namespace: namespace, Name: name}, g)}))
}

// apply writes a binding, or deletes it if the grant is nil.
func (w *world) apply(key keepwatch.Key, g *Grant) keepwatch.Change {
	w.Helper()
	w.bindings++
	before, exists := w.roles.Bindings.Snapshot().Get(key)
	c := keepwatch.Change{Type: keepwatch.Added, Revision: w.bindings, Object: binding{key, w.bindings, g}}
	switch {
	case g == nil:
		c.Type, c.Object = keepwatch.Deleted, binding{key, w.bindings, before.(Granting).Grant()}
	case exists:
		c.Type = keepwatch.Modified
	}
	batch := keepwatch.Batch{From: w.bindings - 1, To: w.bindings, Changes: []keepwatch.Change{c}}
	if _, err := w.roles.Bindings.Apply(w.Context(), batch); err != nil {
		w.Fatal(err)
	}
	w.set(func() { w.revision++ })
	return c
}

func subject(name string) Subject {
	return Subject{&user.DefaultInfo{Name: name}, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "list"}
}

// one returns the view of a subject alone, without that of the other verb.
func (w *world) one(ctx context.Context, s Subject) (*View, error) {
	held, err := w.views.hold(s)
	if err != nil {
		return nil, err
	}
	defer w.views.release(false, held...)
	return held[0], held[0].current(ctx)
}

func (w *world) of(s Subject) *View {
	w.Helper()
	view, err := w.one(w.Context(), s)
	if err != nil {
		w.Fatal(err)
	}
	return view
}

func names(v *View) []string {
	present, _, _ := v.Namespaces()
	return present.Names()
}

// expect compares a view with what the server allows: the dumb twin.
func (w *world) expect(name string) {
	w.Helper()
	var want []string
	for namespace := range w.uids {
		if w.allowed[name+"/"+namespace] {
			want = append(want, namespace)
		}
	}
	got := names(w.of(subject(name)))
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.Fatalf("%s has %v, and the server allows %v", name, got, want)
	}
}

// After each random step of bindings and namespaces, the set of each user is what the server allows, of namespaces
// whose names are prefixes of one another. The server is asked about namespaces alone in which a user is bound.
func TestSetsFollowDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "a-b", "ab", "b")
		random := rand.New(rand.NewPCG(44, 3))
		ever := map[string]bool{}
		for range 300 {
			name, namespace := []string{"ada", "bob"}[random.IntN(2)], []string{"a", "a-b", "ab", "b"}[random.IntN(4)]
			switch random.IntN(4) {
			case 0:
				w.set(func() { delete(w.uids, namespace) })
				w.views.Recheck(namespace)
			case 1:
				w.set(func() { w.uids[namespace] = keepwatch.UID(fmt.Sprint(random.IntN(1000))) })
				w.views.Recheck(namespace)
			default:
				if bound := !w.allowed[name+"/"+namespace]; bound || ever[name+"/"+namespace] {
					w.bind(name, namespace, bound)
					ever[name+"/"+namespace] = true
				}
			}
			w.expect("ada")
			w.expect("bob")
			for about := range w.asked {
				if !ever[about] && !strings.HasSuffix(about, "/") {
					t.Fatalf("the server was asked about %s", about)
				}
			}
		}
	})
}

// open opens a view that is not forgotten.
func (w *world) open(v *View) (closed func()) {
	w.Helper()
	end, err := v.Open(w.newest)
	if err != nil {
		w.Fatal(err)
	}
	return func() {
		end()
		time.Sleep(2 * w.takes) // for what is in flight
	}
}

// resumable reports whether a watch can continue what was sent at a revision.
func resumable(of interface {
	Resumable(keepwatch.Revision) (*watchcache.Namespaces, bool)
}, from keepwatch.Revision) bool {
	_, ok := of.Resumable(from)
	return ok
}

// becomes waits until a view has some namespaces.
func becomes(v *View, want ...string) {
	for {
		present, replaced, _ := v.Namespaces()
		if slices.Equal(present.Names(), want) {
			return
		}
		<-replaced
	}
}

// An open view whose decisions count for less time from now on is decided again after that time.
func TestDecisionsThatCountForLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.bind("ada", "a", true)
		view := w.of(subject("ada"))
		defer w.open(view)()
		time.Sleep(10 * time.Minute)
		w.set(func() { w.lifetime, w.allowed["ada/a"] = 10*time.Second, false })
		w.views.Wake()
		began := time.Now()
		becomes(view)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("what is revoked is shown for %v", took)
		}
	})
}

// What a server denies that starts does not count for a view that begins: it would have too little.
func TestDenialsOfAServerThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.bind("ada", "a", true)
		w.bind("ada", "b", true)
		w.set(func() { w.unseen, w.unready, w.allowed["ada/b"] = true, errors.New("it starts"), false })
		if view, err := w.one(t.Context(), subject("ada")); !errors.Is(err, w.unready) {
			t.Errorf("%v, %v", names(view), err)
		}
		w.set(func() { w.unready, w.allowed["ada/b"] = nil, true })
		w.expect("ada")
		w.set(func() { w.unseen, w.unready = false, errors.New("its probe fails") })
		w.expect("bob")
	})
}

// While changes of roles are not seen, a view that is shown asks about no namespace but those that it may have by what
// was seen: the views of all users would ask a server about everything that has just started. What is revoked then is
// noticed as soon as decisions do not count any more, and what is granted when changes are seen. No watch resumes: it
// may have been shown another set elsewhere.
func TestRolesThatAreNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c", "d")
		w.bind("ada", "a", true)
		w.bind("ada", "b", true)
		w.bind("bob", "a", true)
		time.Sleep(quiet + time.Second)
		view := w.of(subject("ada"))
		defer w.open(view)()
		time.Sleep(time.Minute)
		w.set(func() {
			w.unseen, w.lifetime = true, 10*time.Second
			w.allowed["ada/b"], w.allowed["ada/c"] = false, true
			clear(w.asked)
		})
		w.views.Wake()
		began := time.Now()
		becomes(view, "a")
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("what is revoked is shown for %v", took)
		}
		if w.times("ada/c")+w.times("ada/d") > 0 {
			t.Error("the server is asked about all namespaces")
		}
		w.bind("ada", "a", true)
		time.Sleep(Settled + 2*time.Second)
		if w.set(func() { w.revision += 100 }); resumable(view, w.revision) {
			t.Error("a watch resumes")
		}
		w.set(func() { w.unseen = false })
		w.bindAs("other", userPrefix+"ada", "c", true)
		w.views.Touch(nil, false)
		becomes(view, "a", "c")
		w.set(func() { w.unseen = true })
		w.expect("bob")
		if w.times("bob/d") == 0 {
			t.Error("a view that begins has only what was seen")
		}
	})
}

// A denial of all namespaces counts for what is shown when the server repeats it, as that of one namespace does.
func TestOneDenialOfAllNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		var denies atomic.Bool
		w.views = New(w, deniesOnce{w, &denies}, metrics.NewKubeRegistry(), Settled)
		w.bind("ada", "a", true)
		w.set(func() { w.allowed["ada/"] = true })
		time.Sleep(quiet + time.Second)
		view := w.of(subject("ada"))
		defer w.open(view)()
		synctest.Wait()
		_, replaced, _ := view.Namespaces()
		denies.Store(true)
		w.views.Recheck()
		time.Sleep(10 * time.Second)
		if denies.Load() || isClosed(replaced) || len(names(view)) != 3 {
			t.Errorf("after one denial: %v", names(view))
		}
		w.set(func() { w.allowed["ada/"] = false })
		w.views.Recheck()
		becomes(view, "a")
	})
}

// deniesOnce denies what is asked about all namespaces, once.
type deniesOnce struct {
	*world
	denies *atomic.Bool
}

func (d deniesOnce) Decide(ctx context.Context, a authorizer.Attributes, open bool) (bool, error) {
	allowed, err := d.world.Decide(ctx, a, open)
	return allowed && (a.GetNamespace() != "" || !d.denies.CompareAndSwap(true, false)), err
}

// A view with a watch is decided again as soon as a binding of its user changes, and the views of other users are not.
func TestOpenViewsAreDecidedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.bind("ada", "a", true)
		w.bind("bob", "b", true)
		ada, bob := w.of(subject("ada")), w.of(subject("bob"))
		defer w.open(ada)()
		defer w.open(bob)()
		time.Sleep(time.Minute)
		w.set(func() { clear(w.asked) })
		began := time.Now()
		w.bind("ada", "a", false)
		becomes(ada)
		if took := time.Since(began); took > time.Second || len(names(ada)) > 0 {
			t.Errorf("after %v: %v", took, names(ada))
		}
		if w.times("bob/b") > 0 {
			t.Error("the view of another user was decided again")
		}

		// An API server that lags decides by what was before.
		w.bind("ada", "a", true)
		w.set(func() { w.allowed["ada/a"] = false })
		time.Sleep(2 * time.Second)
		w.set(func() { w.allowed["ada/a"] = true })
		began = time.Now()
		becomes(ada, "a")
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("after %v", took)
		}
	})
}

// A revision is resumable if it is higher than all that were sent with another set. The floor of a view that begins is
// the newest revision.
func TestEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.bind("ada", "a", true)
		time.Sleep(quiet + time.Second)
		view := w.of(subject("ada"))
		defer w.open(view)()
		synctest.Wait()
		if at := w.revision; resumable(view, at-1) || !resumable(view, at) {
			t.Errorf("when a view begins at %d its floor is %d", at, view.Floor())
		}
		before := w.revision
		w.bind("ada", "b", true)
		for range 4 {
			synctest.Wait()
			if resumable(view, before) || resumable(view, w.revision+100) {
				t.Error("resumable before the change has settled")
			}
			w.set(func() { w.revision++ }) // another replica sends it with the set before
			time.Sleep(time.Second)
		}
		time.Sleep(3 * time.Second)
		if at := w.revision; resumable(view, at) || !resumable(view, at+1) {
			t.Errorf("when a change has settled at %d the floor is %d", at, view.Floor())
		}

		// A binding that is changed without an effect here may have had one at another replica.
		w.set(func() { w.revision += 10 })
		if !resumable(view, w.revision) {
			t.Fatal("not resumable")
		}
		w.bind("ada", "b", true)
		if resumable(view, w.revision) {
			t.Error("resumable after a binding has changed")
		}

		// So may one that was changed shortly before a view begins.
		w.bind("bob", "a", true)
		time.Sleep(Settled + time.Second)
		late := w.of(subject("bob"))
		late.Settle(t.Context(), w.newest)
		if at := w.revision; resumable(late, at) || !resumable(late, at+1) {
			t.Errorf("a view that begins after a change at %d has the floor %d", at, late.Floor())
		}

		// Long after a change the server has written something since it has settled.
		w.bind("bob", "b", true)
		time.Sleep(quiet + time.Second)
		late = w.of(subject("bob"))
		late.Settle(t.Context(), w.newest)
		if at := w.revision; !resumable(late, at) || resumable(late, at-1) {
			t.Errorf("a view that is used long after a change at %d has the floor %d", at, late.Floor())
		}
	})
}

// The API server may decide by a binding that the proxy does not follow yet. A watch of a view that has begun with
// such a decision looks at the set again when the binding arrives: until then another replica may have shown the set
// before.
func TestDecidedBeforeTheBindingArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.beyond = true // the server is asked about all namespaces
		w.set(func() { w.allowed["ada/a"] = true })
		view := w.of(subject("ada"))
		view.Settle(t.Context(), w.newest)
		if !resumable(view, w.revision) {
			t.Fatal("not resumable")
		}
		defer w.open(view)()
		_, replaced, _ := view.Namespaces()
		w.bind("ada", "a", true)
		select {
		case <-replaced:
		default:
			t.Error("watches are not notified")
		}
		if resumable(view, w.revision) {
			t.Error("resumable from when another replica may have shown the set before")
		}
	})
}

// A binding that changes again and again and does not concern the set, such as one of a group for other resources,
// does not end the watches that have resumed. A set that was replaced a moment ago may have known it.
func TestBindingsThatDoNotConcernTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		ada := subject("ada")
		ada.User = &user.DefaultInfo{Name: "ada", Groups: []string{"devs"}}
		w.bind("ada", "a", true)
		view := w.of(ada)
		defer w.open(view)()
		notified := func(change func()) bool {
			_, replaced, _ := view.Namespaces()
			change()
			select {
			case <-replaced:
				return true
			default:
				return false
			}
		}
		for i := range 10 {
			time.Sleep(Settled + time.Second + time.Duration(i%4)*time.Second)
			if notified(func() { w.bindAs("other", groupPrefix+"devs", "a", i%2 == 0); time.Sleep(Settled / 2) }) {
				t.Errorf("watches are notified of change %d", i)
			}
			if resumable(view, w.revision+100) {
				t.Error("resumable before the change has settled")
			}
		}
		w.bind("ada", "b", true)
		becomes(view, "a", "b")
		if !notified(func() { w.bindAs("other", groupPrefix+"devs", "b", true) }) {
			t.Error("watches are not notified, and the new set may be that of the change")
		}
	})
}

// A namespace that was deleted and created again is another one: the set changes, and no earlier revision is
// resumable.
func TestNamespaceMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.bind("ada", "a", true)
		view := w.of(subject("ada"))
		before, _, _ := view.Namespaces()
		w.set(func() { w.uids["a"] = "a-2" })
		w.views.Recheck("a")
		view = w.of(subject("ada"))
		if after, _, _ := view.Namespaces(); after.Equal(before) || resumable(view, w.revision) {
			t.Error("the set is the same")
		}
	})
}

// A view whose namespaces the server does not decide about keeps its set for ten seconds, and has none after that. A
// view that begins fails.
func TestUndecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.bind("ada", "a", true)
		view := w.of(subject("ada"))
		defer w.open(view)()
		time.Sleep(time.Minute)
		w.set(func() { w.fails = true })
		w.views.Touch(nil, false)
		time.Sleep(5 * time.Second)
		if _, _, err := view.Namespaces(); err != nil {
			t.Error(err)
		}
		time.Sleep(7 * time.Second)
		if _, _, err := view.Namespaces(); err == nil {
			t.Error("the set is still known")
		}
		if _, err := w.one(t.Context(), subject("bob")); err == nil {
			t.Error("a view begins without decisions")
		}
		w.set(func() { w.fails = false })
		time.Sleep(3 * time.Second)
		if _, _, err := view.Namespaces(); err != nil {
			t.Error(err)
		}
	})
}

// With other authorizers than roles the server is asked about every namespace, few at a time.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []string
		for i := range 500 {
			all = append(all, fmt.Sprint("n", i))
		}
		w := newWorld(t, all...)
		w.beyond, w.takes = true, time.Millisecond
		w.set(func() { w.allowed["ada/n7"] = true })
		view := w.of(subject("ada"))
		if got := names(view); !slices.Equal(got, []string{"n7"}) || len(w.asked) != 501 || w.most.Load() > reviewsOfView {
			t.Errorf("%v after %d reviews, %d at a time", got, len(w.asked), w.most.Load())
		}
		const users = 20
		var running sync.WaitGroup
		for i := range users {
			running.Go(func() { w.of(subject(fmt.Sprint("user", i))) })
		}
		running.Wait()
		if n := w.most.Load(); n > users+moreAskers || n <= users {
			t.Errorf("%d reviews at a time", n)
		}
	})
}

// ofResource returns a view of a user and one of many resources, or the error.
func (w *world) ofResource(name string, i int) (*View, error) {
	s := subject(name)
	s.Resource.Resource = fmt.Sprint("r", i)
	return w.one(w.Context(), s)
}

// watches opens views of a user until there are no more, and returns them.
func (w *world) watches(name string, most int) (all []*View) {
	w.Helper()
	for i := range most {
		view, err := w.ofResource(name, i)
		if errors.Is(err, ErrBusy) {
			return all
		}
		if err != nil {
			w.Fatal(err)
		}
		closed := w.open(view)
		w.Cleanup(closed)
		all = append(all, view)
		time.Sleep(time.Millisecond)
	}
	return all
}

// ended returns how many of some views have no set any more.
func ended(views []*View) (n int) {
	for _, view := range views {
		if _, _, err := view.Namespaces(); apierrors.IsTooManyRequests(err) {
			n++
		}
	}
	return n
}

// Alone a user may have all views. Another one has half of them as soon as it wants, in place of the first one's
// oldest, whose watches end, and a third one a third. The accounts of one namespace have one share, which they share
// alike.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.views.most = 60
		ada := w.watches("ada", 100)
		bob := w.watches("bob", 100)
		if len(ada) != 60 || len(bob) != 30 || ended(ada) != 30 || ended(ada[:30]) != 30 || ended(bob) != 0 {
			t.Errorf("ada has %d without %d, bob %d without %d", len(ada), ended(ada), len(bob), ended(bob))
		}
		first := w.watches("system:serviceaccount:a:1", 100)
		second := w.watches("system:serviceaccount:a:2", 100)
		third := w.watches("system:serviceaccount:a:3", 100)
		for name, n := range map[string]int{
			"ada": len(ada) - ended(ada), "bob": len(bob) - ended(bob), "a": len(first) + len(second) + len(third) -
				ended(first) - ended(second) - ended(third),
		} {
			if n < 19 || n > 21 {
				t.Errorf("%s has %d of 60 views", name, n)
			}
		}
		for i, all := range [][]*View{first, second, third} {
			if n := len(all) - ended(all); n < 6 || n > 8 {
				t.Errorf("account %d has %d", i+1, n)
			}
		}
		if _, err := w.ofResource("ada", 99); !errors.Is(err, ErrBusy) {
			t.Errorf("one more of who has its share: %v", err)
		}
		all := slices.Concat(ada, bob, first, second, third)
		if n := w.forgotten("share"); n != ended(all) {
			t.Errorf("%d are counted, and %d have ended", n, ended(all))
		}
	})
}

// forgotten returns how many views were forgotten for a reason.
func (w *world) forgotten(why string) int {
	return w.counted("keepwatch_proxy_personal_forgotten_total", why)
}

// counted returns the value of a counter, of one with a label if that is not empty.
func (w *world) counted(name, label string) (n int) {
	w.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				n += int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

// A view that is not in use is forgotten for another one of its user, and after a minute for anybody's. Until then no
// user who has more takes its place: its client is about to continue a list.
func TestUnusedViewsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.views.most = 10
		w.bind("bob", "a", true)
		bob := w.of(subject("bob"))
		knows := func() bool {
			w.views.mu.Lock()
			defer w.views.mu.Unlock()
			return w.views.all[keyOf(subject("bob"))] == bob
		}
		for i := range 100 {
			if _, err := w.ofResource("ada", i); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.views.len(); n != 10 || !knows() || w.forgotten("unused") != 91 {
			t.Errorf("%d views, bob's: %v, %d are forgotten", n, knows(), w.forgotten("unused"))
		}
		if all := w.watches("ada", 100); len(all) != 9 || !knows() {
			t.Errorf("ada has %d, bob's: %v", len(all), knows())
		}
		time.Sleep(abandonedAfter + time.Second)
		if view, err := w.ofResource("ada", 99); err != nil || knows() {
			t.Errorf("%v, bob's: %v", err, knows())
		} else {
			w.Cleanup(w.open(view))
		}
		if again := w.of(subject("bob")); again == bob {
			t.Error("the view was not forgotten")
		}
	})
}

// A decision that was under way when the watches of a view ended brings nothing back.
func TestForgottenViewsStayEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.views.most = 2
		w.bind("ada", "a", true)
		all := w.watches("ada", 2)
		w.set(func() { w.takes = time.Second })
		w.bind("ada", "a", true)
		synctest.Wait()
		if _, err := w.ofResource("bob", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if ended(all) != 1 {
			t.Errorf("%d views have ended", ended(all))
		}
	})
}

// A request that has ended does not wait for the decision that another one has begun.
func TestEndedRequestsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.takes = time.Minute
		var deciding sync.WaitGroup
		deciding.Go(func() { w.of(subject("ada")) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := w.one(ctx, subject("ada"))
		if took := time.Since(began); took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %v", err, took)
		}
		deciding.Wait()
	})
}

// Of the subjects of bindings that change, a bounded number is remembered: beyond it the change counts for anybody.
func TestTouchedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		subjects := map[string]bool{}
		for i := range maxTouched + 1 {
			subjects[fmt.Sprint(userPrefix, i)] = true
		}
		w.views.Touch(subjects, true)
		if n := len(w.views.touched); n > maxTouched {
			t.Errorf("%d subjects", n)
		}
		view := w.of(subject("17"))
		view.Settle(t.Context(), w.newest)
		if resumable(view, w.revision+100) {
			t.Error("a change of the user's bindings is forgotten")
		}
	})
}

// A view that is forgotten between a request and its watch is not opened: no change of a binding would reach it.
func TestForgottenViewsAreNotOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.views.most = 10
		w.bind("ada", "a", true)
		late := w.of(subject("ada"))
		for i := range w.views.most {
			time.Sleep(time.Millisecond)
			if _, err := w.ofResource("ada", i); err != nil {
				t.Fatal(err)
			}
		}
		if closed, err := late.Open(w.newest); err != ErrBusy {
			t.Errorf("it is opened: %v", err)
			closed()
		}
		if again := w.of(subject("ada")); again == late {
			t.Error("the view was not forgotten")
		} else {
			w.open(again)()
		}
	})
}

// The views of a user and a resource, of both verbs, have less than 4 KB of memory: with three namespaces, and with a
// thousand, if its user has them as others do. What follows them while a watch is open has more: two goroutines, whose
// stacks are larger with the race detector.
func TestViewsAreSmall(t *testing.T) {
	for _, c := range []struct {
		users, namespaces int
		group, open       bool
		most              int64
	}{
		{1000, 3, false, false, 4 << 10}, {1000, 3, false, true, 64 << 10}, {20, 1000, true, false, 4 << 10},
		{20, 1000, false, false, 48 << 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			var all []string
			for i := range 1000 {
				all = append(all, fmt.Sprint("namespace-", i))
			}
			w := newWorld(t, all...)
			used := func() int64 {
				for range 3 { // each halves the stacks of those that wait
					runtime.GC()
				}
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				if c.open {
					return int64(m.HeapAlloc + m.StackInuse)
				}
				return int64(m.HeapAlloc)
			}
			var subjects []Subject
			for i := range 1 + c.users {
				s := subject(fmt.Sprint("user-", i))
				if c.group {
					s.User.(*user.DefaultInfo).Groups = []string{"devs"}
				}
				for j := range c.namespaces {
					namespace := all[(i+j)%len(all)]
					if c.group {
						w.allowed[s.User.GetName()+"/"+namespace] = true
					} else if i == 0 || i+j < len(all) { // no two users have the same
						w.bind(s.User.GetName(), namespace, true)
					}
				}
				subjects = append(subjects, s)
			}
			for _, namespace := range all {
				w.bindAs("devs", groupPrefix+"devs", namespace, true)
			}
			w.asked = make(map[string]int, 3*len(subjects)*c.namespaces)
			read := func(s Subject) {
				if c.open {
					s.Verb = "watch"
				}
				r, err := w.views.Read(s)
				if err == nil {
					_, err = r.Decide(t.Context())
				}
				if err == nil && c.open {
					err = r.Open(w.newest)
				}
				if err != nil {
					t.Fatal(err)
				}
				if c.open {
					t.Cleanup(r.End)
				} else {
					r.End()
				}
			}
			read(subjects[0])
			before := used()
			for _, s := range subjects[1:] {
				read(s)
			}
			time.Sleep(time.Minute)
			w.set(func() { clear(w.asked) })
			bytes := (used() - before) / int64(c.users)
			t.Logf("%d bytes a user with %d namespaces; of a group: %v, with an open watch: %v", bytes, c.namespaces, c.group,
				c.open)
			if bytes > c.most {
				t.Errorf("%d bytes a user with %d namespaces, want %d at most", bytes, c.namespaces, c.most)
			}
			runtime.KeepAlive(w)
		})
	}
}

// A set is forgotten when no view has it any more.
func TestSetsAreForgotten(t *testing.T) {
	var s sets
	one := s.of(map[string]keepwatch.UID{"a": "1"}, false, nil)
	if s.of(map[string]keepwatch.UID{"a": "1"}, false, nil) != one {
		t.Error("equal sets are not the same")
	}
	others := []*watchcache.Namespaces{
		s.of(map[string]keepwatch.UID{"a": "2"}, false, nil), s.of(map[string]keepwatch.UID{"a": "1"}, true, nil),
		s.of(map[string]keepwatch.UID{"a": "1", "b": "1"}, false, nil),
	}
	if slices.Contains(others, one) {
		t.Error("sets that differ are the same")
	}
	known := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.all)
	}
	if n := known(); n != 4 {
		t.Errorf("%d sets are known", n)
	}
	runtime.KeepAlive(others)
	others = nil
	await.True(t, "the others are forgotten", func() bool { runtime.GC(); return known() == 1 })
	if s.of(map[string]keepwatch.UID{"a": "1"}, false, nil) != one {
		t.Error("a set that is in use was forgotten")
	}
}

// Of a thousand users with ten of a thousand namespaces each, who all have an open watch, the server is asked about
// those alone, once for each of the two views, and about nobody else when a binding of one of them changes.
func TestThousandUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const users, bound = 1000, 10
		w := newWorld(t, numbered(1000)...)
		for i := range users {
			for j := range bound {
				w.bind(fmt.Sprint("user-", i), fmt.Sprintf("n%03d", (i+100*j)%1000), true)
			}
		}
		time.Sleep(time.Minute)
		for i := range users {
			s := subject(fmt.Sprint("user-", i))
			s.Verb = "watch"
			r, err := w.views.Read(s)
			if err != nil {
				t.Fatal(err)
			}
			defer r.End()
			if _, err := r.Decide(t.Context()); err != nil {
				t.Fatal(err)
			}
			if has, of := r.Count(); has != bound || of != 1000 {
				t.Fatalf("user %d has %d of %d namespaces", i, has, of)
			}
			if err := r.Open(w.newest); err != nil {
				t.Fatal(err)
			}
		}
		questions := func() (n int, others string) {
			synctest.Wait()
			w.set(func() {
				for about, times := range w.asked {
					if n += times; !strings.HasPrefix(about, "user-7/") {
						others = about
					}
				}
				clear(w.asked)
			})
			return n, others
		}
		if n, _ := questions(); n != users*2*(bound+1) {
			t.Errorf("%d questions about %d users", n, users)
		}
		time.Sleep(30 * time.Second)
		if n, _ := questions(); n > 0 {
			t.Errorf("%d questions although nothing has changed", n)
		}
		w.bind("user-7", "n008", true)
		time.Sleep(15 * time.Second)
		if n, others := questions(); others != "" || n < 2*(bound+2) || n > 2*8*(bound+2) {
			t.Errorf("%d questions after a change of one binding, also about %q", n, others)
		}
	})
}

// Beside authorizers that are not known, the server is asked about each of a thousand namespaces once for each of many
// users, with few questions in flight.
func TestThousandNamespacesBeyondRoles(t *testing.T) {
	users := 1000
	if testing.Short() {
		users = 20
	}
	synctest.Test(t, func(t *testing.T) {
		w := slow(t, 1000)
		w.takes = time.Millisecond
		var deciding sync.WaitGroup
		for i := range users {
			deciding.Go(func() { w.of(subject(fmt.Sprint("user-", i))) })
		}
		deciding.Wait()
		n := 0
		w.set(func() {
			for _, times := range w.asked {
				n += times
			}
		})
		if most := w.most.Load(); n != users*1001 || most > int64(users+moreAskers) {
			t.Errorf("%d questions about %d users, %d at a time", n, users, most)
		}
	})
}

// A role, a binding and their subjects are read from JSON.
func TestParseGrant(t *testing.T) {
	key := keepwatch.Key{Namespace: "a", Name: "b"}
	for text, want := range map[string]string{
		`{"subjects":[{"kind":"User","name":"ada"},{"kind":"Group","name":"devs"},{"kind":"ServiceAccount","name":"s"},{"kind":"ServiceAccount","namespace":"n","name":"s"}],"roleRef":{"kind":"Role","name":"r"}}`: "[user ada group devs user system:serviceaccount:a:s user system:serviceaccount:n:s] a/r []",
		`{"roleRef":{"kind":"ClusterRole","name":"r"}}`:                                                               "[] /r []",
		`{"rules":[{"resources":["namespaces"],"resourceNames":["x"]},{"resources":["pods"],"resourceNames":["y"]}]}`: "[] a/b [x]",
	} {
		g := ParseGrant(key, []byte(text))
		if got := fmt.Sprint(g.Subjects, " ", g.Role, " ", g.Namespaces); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if ParseGrant(key, []byte("{")) != nil {
		t.Error("a grant of no JSON")
	}
}

// Subjects that differ in anything that a decision may depend on have views of their own.
func TestViewsAreNotShared(t *testing.T) {
	seen := map[key]Subject{}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for _, s := range []Subject{
		{&user.DefaultInfo{Name: "ada"}, pods, "list"},
		{&user.DefaultInfo{Name: "bob"}, pods, "list"},
		{&user.DefaultInfo{Name: "ada", UID: "1"}, pods, "list"},
		{&user.DefaultInfo{Name: "ada", Groups: []string{"devs"}}, pods, "list"},
		{&user.DefaultInfo{Name: "ada", Groups: []string{"devs", "ops"}}, pods, "list"},
		{&user.DefaultInfo{Name: "ada", Groups: []string{"devs ops"}}, pods, "list"},
		{&user.DefaultInfo{Name: "ada", Extra: map[string][]string{"scope": {"a"}}}, pods, "list"},
		{&user.DefaultInfo{Name: "ada", Extra: map[string][]string{"scope": {"a", "b"}}}, pods, "list"},
		{&user.DefaultInfo{Name: "ada", Extra: map[string][]string{"scope": {"b", "a"}}}, pods, "list"},
		{&user.DefaultInfo{Name: "ada", Extra: map[string][]string{"scope": {"a"}, "b": nil}}, pods, "list"},
		{&user.DefaultInfo{Name: "ada"}, pods, "watch"},
		{&user.DefaultInfo{Name: "ada"}, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "list"},
		{&user.DefaultInfo{Name: "ada"}, schema.GroupVersionResource{Version: "v2", Resource: "pods"}, "list"},
		{&user.DefaultInfo{Name: "ada"}, schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pods"},
			"list"},
	} {
		k := keyOf(s)
		if other, found := seen[k]; found {
			t.Errorf("%v and %v have one view", s, other)
		}
		seen[k] = s
	}
}

// Groups are a set: a user has one view in whatever order they are named.
func TestTheOrderOfGroups(t *testing.T) {
	of := func(groups ...string) key {
		s := subject("ada")
		s.User = &user.DefaultInfo{Name: "ada", Groups: groups}
		return keyOf(s)
	}
	if of("devs", "ops") != of("ops", "devs") || of("devs", "ops") != of("devs", "ops", "devs") {
		t.Error("two views")
	}
}

// The server is asked whether the user may get a namespace, by its name, where the objects are namespaces; otherwise
// about the verb in the namespace.
func TestWhatTheServerIsAsked(t *testing.T) {
	ada := &user.DefaultInfo{Name: "ada"}
	for resource, want := range map[string]string{"namespaces": "get a a", "pods": "watch a ", "secrets": "watch a "} {
		a := Subject{ada, schema.GroupVersionResource{Version: "v1", Resource: resource}, "watch"}.attributes("a")
		got := fmt.Sprint(a.GetVerb(), " ", a.GetNamespace(), " ", a.GetName())
		if got != want || a.GetUser() != ada || a.GetResource() != resource || !a.IsResourceRequest() {
			t.Errorf("%s: %q, want %q", resource, got, want)
		}
	}
}

// A binding of a group concerns the views of its members.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		ada := subject("ada")
		ada.User = &user.DefaultInfo{Name: "ada", Groups: []string{"devs"}}
		bob := w.of(subject("bob"))
		defer w.open(bob)()
		w.bindAs("devs", groupPrefix+"devs", "a", true)
		w.set(func() { w.allowed["ada/a"] = true })
		view := w.of(ada)
		if got := names(view); !slices.Equal(got, []string{"a"}) {
			t.Errorf("a member has %v", got)
		}
		defer w.open(view)()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.set(func() { clear(w.asked); w.allowed["ada/a"] = false })
		began := time.Now()
		w.bindAs("devs", groupPrefix+"devs", "a", false)
		becomes(view)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the end of the binding takes %v", took)
		}
		if w.times("bob/") > 0 {
			t.Error("the view of somebody else is decided again")
		}
	})
}

// A change of a role concerns the subjects of all its bindings, and one of a cluster's role those of the bindings of
// namespaces too. What cannot be read may concern anybody.
func TestRolesConcernTheirSubjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.bind("ada", "a", true)
		w.bind("bob", "b", true) // to another role of the same name
		w.apply(keepwatch.Key{Namespace: "a", Name: "eve"}, &Grant{Subjects: []string{userPrefix + "eve"}, Role: "/reader"})
		change := func(key keepwatch.Key, g *Grant) []keepwatch.Change {
			return []keepwatch.Change{{Type: keepwatch.Modified, Object: binding{key, 9, g}, Prior: binding{key, 8, g}}}
		}
		for role, want := range map[string]string{"a/reader": "ada", "b/reader": "bob", "/reader": "eve"} {
			namespace, name, _ := strings.Cut(role, "/")
			got, ok := w.roles.Touched(change(keepwatch.Key{Namespace: namespace, Name: name}, &Grant{Role: role}))
			if !ok || len(got) != 1 || !got[userPrefix+want] {
				t.Errorf("%s concerns %v, want %s", role, got, want)
			}
		}
		if _, ok := w.roles.Touched(change(keepwatch.Key{Name: "odd"}, nil)); ok {
			t.Error("what cannot be read concerns nobody")
		}
	})
}
