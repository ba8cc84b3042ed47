package personal

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/metrics"
)

// reads begins a list or a watch of a user, which lasts until it is ended.
func (w *world) reads(name, verb string) *Reading {
	w.Helper()
	s := subject(name)
	s.Verb = verb
	r, err := w.views.Read(s)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := r.Decide(w.Context()); err != nil {
		w.Fatal(err)
	}
	if err := r.Open(w.newest); err != nil {
		w.Fatal(err)
	}
	return r
}

// While a watch is open, its revisions can be continued: the view of lists is not forgotten as one that nobody uses,
// and follows a change of bindings as that of watches.
func TestOpenWatchesCanBeContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.views.most = 6
		w.bind("ada", "a", true)
		time.Sleep(quiet + time.Second)
		watch := w.reads("ada", "watch")
		time.Sleep(2 * abandonedAfter)
		for _, name := range []string{"bob", "bob", "carol", "dan", "eve"} {
			w.reads(name, "list").End()
		}
		w.bind("ada", "b", true)
		time.Sleep(Settled + time.Second)
		w.set(func() { w.revision += 10 })
		shown := w.revision
		w.set(func() { w.revision += 10 })
		time.Sleep(10 * time.Minute)
		watch.End()
		again := w.reads("ada", "watch")
		if !resumable(again, shown) {
			t.Errorf("a watch cannot be continued from %d, the floors are %d and %d", shown, again.shown.Floor(),
				again.other.Floor())
		}
		again.End()
	})
}

// A reading has both views, or none: no watch ends for a list that is then refused.
func TestBothViewsAreHeldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.views.most = 4
		for _, name := range []string{"ada", "bob", "carol"} {
			w.bind(name, "a", true)
		}
		ada, bob := w.reads("ada", "watch"), w.reads("bob", "watch")
		defer ada.End()
		defer bob.End()
		carol := subject("carol")
		if _, err := w.views.Read(carol); !errors.Is(err, ErrBusy) {
			t.Fatalf("%v, and there is room for one view more", err)
		}
		if _, _, err := ada.Namespaces(); err != nil || ended([]*View{ada.other, bob.shown, bob.other}) > 0 {
			t.Errorf("a watch has ended for a list that is refused: %v", err)
		}
		if n := w.views.len(); n > 4 || w.refused() != 1 {
			t.Errorf("%d views, %d readings are refused", n, w.refused())
		}
	})
}

// Every reading that is answered 429 because its view has gone is counted.
func TestRefusedReadingsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.bind("ada", "a", true)
		forget := func() {
			w.views.mu.Lock()
			defer w.views.mu.Unlock()
			w.views.forget(w.views.all[keyOf(subject("ada"))])
		}
		open := w.reads("ada", "list")
		forget()
		if _, _, err := open.Namespaces(); err == nil || w.refused() != 1 {
			t.Errorf("a list that is answered: %v, %d", err, w.refused())
		}
		_, _, _ = open.Namespaces()
		open.End()
		late, err := w.views.Read(subject("ada"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := late.Decide(t.Context()); err != nil {
			t.Fatal(err)
		}
		forget()
		if err := late.Open(w.newest); !errors.Is(err, ErrBusy) || w.refused() != 2 {
			t.Errorf("a list whose view has gone before it: %v, %d", err, w.refused())
		}
		late.End()
		undecided, err := w.views.Read(subject("ada"))
		if err != nil {
			t.Fatal(err)
		}
		forget()
		if _, err := undecided.Decide(t.Context()); !errors.Is(err, ErrBusy) || w.refused() != 3 {
			t.Errorf("a list whose view has gone before its decision: %v, %d", err, w.refused())
		}
		undecided.End()
	})
}

// refused returns how many readings were refused.
func (w *world) refused() int { return w.counted("keepwatch_proxy_personal_refused_total", "") }

// A user may list in other namespaces than it may watch: what is continued is a list's. A watch learns when that set
// is replaced, since another replica may have had the new one before.
func TestListsAndWatchesOfOtherNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		listsOnly := map[string]bool{"b": true}
		w.views = New(w, byVerb{w, listsOnly}, metrics.NewKubeRegistry(), Settled)
		for _, namespace := range []string{"a", "b"} {
			w.bind("ada", namespace, true)
		}
		time.Sleep(quiet + time.Second)
		watch := w.reads("ada", "watch")
		defer watch.End()
		synctest.Wait()
		present, replaced, err := watch.Namespaces()
		if err != nil || !slices.Equal(present.Names(), []string{"a"}) {
			t.Fatalf("a watch has %v, %v", present.Names(), err)
		}
		listed, ok := watch.Resumable(w.revision)
		if !ok || !slices.Equal(listed.Names(), []string{"a", "b"}) {
			t.Fatalf("a watch continues %v, %v", listed, ok)
		}
		listsOnly["c"] = true
		w.bind("ada", "c", true)
		time.Sleep(time.Second)
		if !isClosed(replaced) {
			t.Error("a watch does not learn that its client may have listed another set elsewhere")
		}
		if _, ok := watch.Resumable(w.revision); ok {
			t.Error("a list with the set before is continued")
		}
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// byVerb allows only lists in some namespaces.
type byVerb struct {
	*world
	listsOnly map[string]bool
}

func (b byVerb) Decide(ctx context.Context, a authorizer.Attributes, open bool) (bool, error) {
	allowed, err := b.world.Decide(ctx, a, open)
	return allowed && (a.GetVerb() == "list" || !b.listsOnly[a.GetNamespace()]), err
}

func (b byVerb) Confirm(ctx context.Context, a authorizer.Attributes, open bool) (bool, error) {
	return b.Decide(ctx, a, open)
}
