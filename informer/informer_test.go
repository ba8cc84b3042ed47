package informer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer"
	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

func pods(t *testing.T, s *podtest.Server, options ...informer.Option) *informer.Informer[*corev1.Pod] {
	t.Helper()
	inf, err := informer.New[*corev1.Pod](s.Config(), options...)
	if err != nil {
		t.Fatal(err)
	}
	return inf
}

func names[T interface{ GetName() string }](objects func(func(T) bool)) (all []string) {
	for o := range objects {
		all = append(all, o.GetName())
	}
	return all
}

func TestTypedInformer(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a", podtest.Mark("x")), podtest.Pod("b"), podtest.Pod("c", podtest.Mark("x")))
	inf := pods(t, s, informer.Index("mark", func(p *corev1.Pod) []string { return []string{p.Labels["mark"]} }))
	if got := inf.State(); got != health.Stopped {
		t.Errorf("before Run: %s", got)
	}
	stop := podtest.RunTyped(t, inf)
	<-inf.Synced()
	before := inf.Snapshot()
	if got := names(inf.All()); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("All: %q", got)
	}
	if got := names(before.ByIndex("mark", "x")); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("ByIndex: %q", got)
	}
	s.Put(podtest.Pod("b", podtest.Mark("x")))
	s.Remove("a")
	podtest.Eventually(t, func() bool { return len(names(inf.All())) == 2 }, func() string {
		return fmt.Sprint(names(inf.All()))
	})
	if got := names(inf.Snapshot().ByIndex("mark", "x")); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("ByIndex: %q", got)
	}
	if got := names(before.ByIndex("mark", "x")); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("the snapshot has changed: %q", got)
	}
	if p, ok := inf.Get("ns", "b"); !ok || p.Labels["mark"] != "x" {
		t.Errorf("Get: %v, %v", p, ok)
	}
	if _, ok := inf.Get("ns", "a"); ok {
		t.Error("Get finds what was deleted")
	}
	if got := inf.State(); got != health.Live {
		t.Errorf("state %s", got)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	if err := inf.Run(t.Context()); err == nil {
		t.Error("it runs twice")
	}
}

// New does not change the caller's configuration, and neither does Run.
func TestNewDoesNotChangeTheConfiguration(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"))
	inf, err := informer.New[*corev1.Pod](s.UnchangedConfig(t), informer.DropManagedFields())
	if err != nil {
		t.Fatal(err)
	}
	podtest.RunTyped(t, inf)
	<-inf.Synced()
}

func TestSelectorsReachTheServer(t *testing.T) {
	s := podtest.NewServer(t)
	asked := make(chan string, 100)
	s.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		q := r.URL.Query()
		asked <- r.URL.Path + " " + q.Get("labelSelector") + " " + q.Get("fieldSelector")
		return false
	})
	inf := pods(t, s, informer.Namespace("web"), informer.Labels("app=web"), informer.Fields("spec.nodeName=n"))
	podtest.RunTyped(t, inf)
	<-inf.Synced()
	if got := <-asked; got != "/api/v1/namespaces/web/pods app=web spec.nodeName=n" {
		t.Errorf("the request is for %s", got)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	s := podtest.NewServer(t)
	for _, o := range []informer.Option{informer.Labels("a in"), informer.Fields("spec.nodeName")} {
		if _, err := informer.New[*corev1.Pod](s.Config(), o); err == nil {
			t.Error("accepted")
		}
	}
}

// changes is a typed handler that records its changes as lines.
type changes struct {
	mu    sync.Mutex
	lines []string
	fail  func(informer.Change[*corev1.Pod]) error
}

func (c *changes) handle(_ context.Context, change informer.Change[*corev1.Pod]) error {
	line := fmt.Sprintf("%s %s[%s]", change.Type, change.Object.Name, change.Object.Labels["mark"])
	if change.Old != nil {
		line += " after [" + change.Old.Labels["mark"] + "]"
	}
	if change.FinalStateUnknown {
		line += "?"
	}
	var err error
	if c.fail != nil {
		if err = c.fail(change); err != nil {
			line += " fails"
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, line)
	return err
}

func (c *changes) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lines)
}

func (c *changes) want(t *testing.T, lines ...string) {
	t.Helper()
	podtest.Eventually(t, func() bool { return len(c.all()) >= len(lines) }, func() string {
		return fmt.Sprintf("events %q", c.all())
	})
	if got := c.all(); !slices.Equal(got, lines) {
		t.Fatalf("events %q, want %q", got, lines)
	}
}

// A change whose call failed is delivered again, merged with later changes of the object. Changes
// of other objects are delivered meanwhile.
func TestFailedChangesAreRetried(t *testing.T) {
	t.Parallel()
	s := podtest.NewServer(t, podtest.Pod("a", podtest.Mark("1")), podtest.Pod("b"))
	inf := pods(t, s)
	var mu sync.Mutex
	broken := true
	events := changes{fail: func(c informer.Change[*corev1.Pod]) error {
		mu.Lock()
		defer mu.Unlock()
		if broken && c.Object.Name == "a" {
			return errors.New("not yet")
		}
		return nil
	}}
	registration, err := inf.Handle(events.handle)
	if err != nil {
		t.Fatal(err)
	}
	podtest.RunTyped(t, inf)
	<-registration.Synced()
	s.Put(podtest.Pod("a", podtest.Mark("2")))
	s.Put(podtest.Pod("b", podtest.Mark("2")))
	events.want(t, "ADDED a[1] fails", "ADDED b[]", "ADDED a[2] fails", "MODIFIED b[2] after []")
	mu.Lock()
	broken = false
	mu.Unlock()
	events.want(t, "ADDED a[1] fails", "ADDED b[]", "ADDED a[2] fails", "MODIFIED b[2] after []", "ADDED a[2]")
	registration.Remove()
	<-registration.Done()
}

// An object that was created and deleted while its handler failed is not delivered again.
func TestRetryOfDeletedObject(t *testing.T) {
	t.Parallel()
	s := podtest.NewServer(t, podtest.Pod("a", podtest.Mark("1")))
	inf := pods(t, s)
	events := changes{fail: func(c informer.Change[*corev1.Pod]) error {
		if c.Object.Name == "b" || c.Type == keepwatch.Deleted && c.Object.Labels["mark"] == "2" {
			return errors.New("never")
		}
		return nil
	}}
	if _, err := inf.Handle(events.handle); err != nil {
		t.Fatal(err)
	}
	podtest.RunTyped(t, inf)
	events.want(t, "ADDED a[1]")
	s.Put(podtest.Pod("b"))
	s.Remove("b")
	s.Put(podtest.Pod("a", podtest.Mark("2")))
	s.Remove("a")
	s.Put(podtest.Pod("a", podtest.Mark("3")))
	want := []string{"ADDED a[1]", "ADDED b[] fails", "MODIFIED a[2] after [1]",
		"DELETED a[2] after [2] fails", "DELETED a[2] after [2] fails", "DELETED a[2] after [2] fails"}
	podtest.Eventually(t, func() bool { return len(events.all()) >= len(want) }, func() string {
		return fmt.Sprint(events.all())
	})
	if got := events.all()[:len(want)]; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// Zero and a positive deadline end Run with the failure, and not earlier. A negative one, the
// default, waits without limit.
// A handler with a period receives the whole state again after it, whenever it was added.
func TestResync(t *testing.T) {
	t.Parallel()
	s := podtest.NewServer(t, podtest.Pod("a"))
	inf := pods(t, s)
	resynced := make(chan informer.Change[*corev1.Pod], 1)
	handle := func() {
		registration, err := inf.Handle(func(_ context.Context, c informer.Change[*corev1.Pod]) error {
			if c.Resync {
				select {
				case resynced <- c:
				default:
				}
			}
			return nil
		}, informer.Resync(10*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if c := await.Receive(t, "a resync", resynced); c.Old != c.Object || c.Object.Name != "a" {
			t.Errorf("%+v", c)
		}
		registration.Remove()
		<-registration.Done()
	}
	podtest.RunTyped(t, inf)
	handle()
	handle()
}

// A handler to which each call brings the next change of another object retries what has failed, and resyncs.
func TestRetriesAndResyncsWhileThereAreAlwaysChanges(t *testing.T) {
	t.Parallel()
	s := podtest.NewServer(t, podtest.Pod("bad"), podtest.Pod("busy", podtest.Mark("0")), podtest.Pod("idle"))
	inf := pods(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	var calls, resyncs atomic.Int64
	n := 0
	registration, err := inf.Handle(func(_ context.Context, c informer.Change[*corev1.Pod]) error {
		switch {
		case c.Object.Name == "bad" && calls.Add(1) == 1:
			return errors.New("not yet")
		case c.Object.Name == "idle" && c.Old != nil:
			resyncs.Add(1)
		case c.Object.Name == "busy" && c.Object.Labels["mark"] == fmt.Sprint(n) && ctx.Err() == nil:
			n++
			s.Put(podtest.Pod("busy", podtest.Mark(fmt.Sprint(n))))
			for ctx.Err() == nil {
				if p, ok := inf.Get("ns", "busy"); ok && p.Labels["mark"] == fmt.Sprint(n) {
					break
				}
				time.Sleep(time.Millisecond) // between two looks at the state
			}
		}
		return nil
	}, informer.Resync(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	podtest.RunTyped(t, inf)
	defer func() { cancel(); <-registration.Done() }()
	defer registration.Remove()
	podtest.Eventually(t, func() bool { return calls.Load() > 1 && resyncs.Load() > 0 }, func() string {
		return fmt.Sprintf("%d calls for the object that failed, %d resyncs", calls.Load(), resyncs.Load())
	})
}

func TestStartupDeadline(t *testing.T) {
	s := podtest.NewServer(t)
	s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		podtest.Status(http.StatusForbidden, "Forbidden", "you may not")(w, r)
		return true
	})
	for _, deadline := range []time.Duration{0, 50 * time.Millisecond} {
		begin := time.Now()
		err := pods(t, s, informer.StartupDeadline(deadline)).Run(t.Context())
		var failure *keepwatch.Failure
		if !errors.As(err, &failure) || failure.Kind != keepwatch.Forbidden {
			t.Errorf("%v: Run returns %v", deadline, err)
		}
		if took := time.Since(begin); took < deadline {
			t.Errorf("%v: Run returns after %v", deadline, took)
		}
	}
	informers := []*informer.Informer[*corev1.Pod]{pods(t, s), pods(t, s, informer.StartupDeadline(-1))}
	for _, inf := range informers {
		podtest.RunTyped(t, inf)
		podtest.Eventually(t, func() bool { return inf.State() == health.Forbidden }, func() string {
			return string(inf.State())
		})
		if err := inf.Status().Healthy(time.Hour); err != nil {
			t.Errorf("within an hour: %v", err)
		}
		if err := inf.Status().Healthy(0); err == nil {
			t.Error("a forbidden informer is healthy")
		}
	}
	s.Intercept(nil)
	for _, inf := range informers {
		podtest.Eventually(t, func() bool { return inf.State() == health.Live }, func() string { return string(inf.State()) })
	}
}

func TestAudit(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("c"))
	inf := pods(t, s)
	var events changes
	if _, err := inf.Audit(t.Context()); err == nil {
		t.Error("an audit before the first list")
	}
	if _, err := inf.Handle(events.handle); err != nil {
		t.Fatal(err)
	}
	podtest.RunTyped(t, inf)
	<-inf.Synced()
	events.want(t, "ADDED a[]", "ADDED b[]", "ADDED c[]")
	audit, err := inf.Audit(t.Context())
	if err != nil || !audit.Equal() || audit.Objects != 3 || audit.Revision != 103 {
		t.Errorf("%+v, %v", audit, err)
	}

	// Changes without an event: b is deleted, c is recreated, d is new.
	s.Mu.Lock()
	delete(s.Pods, "b")
	s.Pods["c"] = podtest.Pod("c", podtest.UID("other"), podtest.At(103), podtest.Mark("other"))
	s.Pods["d"] = podtest.Pod("d", podtest.UID("d"), podtest.At(103))
	s.Mu.Unlock()
	audit, err = inf.Audit(t.Context())
	name := func(n string) []keepwatch.Key { return []keepwatch.Key{{Namespace: "ns", Name: n}} }
	if err != nil || !slices.Equal(audit.Missing, name("d")) || !slices.Equal(audit.Extra, name("b")) ||
		!slices.Equal(audit.Different, name("c")) {
		t.Errorf("%+v, %v", audit, err)
	}
	inf.Repair()
	s.Mu.Lock()
	s.Revision++
	s.Send("BOOKMARK", s.Bookmark())
	s.Mu.Unlock()
	events.want(t, "ADDED a[]", "ADDED b[]", "ADDED c[]",
		"DELETED b[] after []?", "DELETED c[] after []?", "ADDED c[other]", "ADDED d[]")
	if audit, err = inf.Audit(t.Context()); err != nil || !audit.Equal() {
		t.Errorf("%+v, %v", audit, err)
	}

	// Another content at the same revision: the definition has changed.
	s.Redefine(func(p *corev1.Pod) {
		if p.Name == "a" {
			p.Labels = map[string]string{"mark": "new"}
		}
	})
	inf.Repair()
	s.Mu.Lock()
	s.Revision++
	s.Send("BOOKMARK", s.Bookmark())
	s.Mu.Unlock()
	podtest.Eventually(t, func() bool { return slices.Contains(events.all(), "MODIFIED a[new] after []") }, func() string {
		return fmt.Sprintf("events %q", events.all())
	})
}

// If an index function panics for an object, the object is missing from this index only.
func TestTypedIndexFunctionPanics(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("panics"))
	inf := pods(t, s, informer.Index("name", func(p *corev1.Pod) []string {
		if p.Name == "panics" {
			panic("no value")
		}
		return []string{p.Name}
	}))
	podtest.RunTyped(t, inf)
	<-inf.Synced()
	if got := names(inf.Snapshot().ByIndex("name", "a")); !slices.Equal(got, []string{"a"}) {
		t.Errorf("in the index: %q", got)
	}
	if got := names(inf.All()); !slices.Equal(got, []string{"a", "panics"}) {
		t.Errorf("in the cache: %q", got)
	}
}

// A transform that panics or returns nil for an object skips this object only.
func TestTypedTransformPanics(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("nothing"), podtest.Pod("panics"))
	inf := pods(t, s, informer.Transform(func(p *corev1.Pod) (*corev1.Pod, error) {
		switch p.Name {
		case "panics":
			panic("no value")
		case "nothing":
			return nil, nil
		}
		return p, nil
	}))
	podtest.RunTyped(t, inf)
	<-inf.Synced()
	if got := names(inf.All()); !slices.Equal(got, []string{"a"}) {
		t.Errorf("in the cache: %q", got)
	}
	rejected := inf.Status().Rejected
	for name, want := range map[string]string{"panics": "transform: panic: no value",
		"nothing": "transform: it returned nil"} {
		if err := rejected[keepwatch.Key{Namespace: "ns", Name: name}]; err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A transform for another type rejects the objects with an error that names both types.
func TestTransformOfAnotherType(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"))
	inf := pods(t, s, informer.Transform(func(n *corev1.Node) (*corev1.Node, error) { return n, nil }))
	podtest.RunTyped(t, inf)
	<-inf.Synced()
	err := inf.Status().Rejected[keepwatch.Key{Namespace: "ns", Name: "a"}]
	if err == nil || err.Error() != "transform: it is for a *v1.Node, not for a *v1.Pod" {
		t.Errorf("rejected: %v", err)
	}
}
