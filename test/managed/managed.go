// Package managed runs an operator of controller-runtime on our informers: a
// reconciler with owned objects, a field index, a cache of several namespaces,
// metadata-only and unstructured objects, leader election and the priority queue.
package managed

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/informer/health"
)

// deadline bounds every wait: only a hang reaches it.
const deadline = 5 * time.Minute

// Operators run on a server that has load.DefineWidgets' definition: on informers that use the manager's clients, and
// on such that read the server themselves. Package compat runs them with older libraries, too: so they use no other
// package of tests.
func Operators(t *testing.T, server *rest.Config) {
	ctrl.SetLogger(logr.Discard())
	t.Run("hook", func(t *testing.T) {
		run(t, "hook", server, func(cfg *rest.Config) (*rest.Config, *clientgo.Group) {
			return cfg, clientgo.NewGroup()
		})
	})
	t.Run("direct", func(t *testing.T) {
		run(t, "direct", server, func(cfg *rest.Config) (*rest.Config, *clientgo.Group) {
			cfg, direct := clientgo.Direct(cfg)
			return cfg, clientgo.NewGroup(direct, clientgo.DropManagedFields())
		})
	})
}

// world is one operator's cluster.
type world struct {
	*testing.T
	client.Client // of the server, without a cache
	prefix        string
}

func run(t *testing.T, prefix string, cfg *rest.Config, group func(*rest.Config) (*rest.Config, *clientgo.Group)) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, live, prefix}
	for _, ns := range []string{"a", "b", "elsewhere"} {
		w.must(live.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.in(ns)}}))
	}
	for i := range 5 {
		for _, ns := range []string{"a", "b", "elsewhere"} {
			w.create(ns, fmt.Sprintf("w%d", i), int64(i))
		}
	}
	first := w.start(rest.CopyConfig(cfg), scheme, group)
	w.reconciles(first)
	w.caches(first)
	if by := first.watches.by(); by != prefix {
		t.Errorf("the server was watched by %q, want %q", by, prefix)
	}
	w.elects(first, w.start(rest.CopyConfig(cfg), scheme, group))
}

func (w *world) in(ns string) string { return w.prefix + "-" + ns }

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// eventually waits for a condition.
func (w *world) eventually(what string, condition func() bool) {
	w.Helper()
	for until := time.Now().Add(deadline); !condition(); {
		if time.Now().After(until) {
			w.Fatalf("not within %v: %s", deadline, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *world) create(ns, name string, size int64) {
	w.Helper()
	w.must(w.Create(w.Context(), &Widget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.in(ns), Name: name},
		Spec:       WidgetSpec{Size: size, Tags: map[string]string{"color": "red"}},
	}))
}

// instance is a running manager.
type instance struct {
	manager.Manager
	watches watchers
	group   *clientgo.Group
	stop    func()
}

// watchers counts the watches of each kind: client-go's clients for the hook, or our own.
type watchers struct{ ours, theirs atomic.Int64 }

func (w *watchers) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		switch {
		case !r.URL.Query().Has("watch"):
		case strings.HasPrefix(r.UserAgent(), "keepwatch/"):
			w.ours.Add(1)
		default:
			w.theirs.Add(1)
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (w *watchers) by() string {
	switch ours, theirs := w.ours.Load() > 0, w.theirs.Load() > 0; {
	case ours && !theirs:
		return "direct"
	case theirs && !ours:
		return "hook"
	}
	return "both or neither"
}

func (w *world) start(cfg *rest.Config, scheme *runtime.Scheme,
	group func(*rest.Config) (*rest.Config, *clientgo.Group)) *instance {
	w.Helper()
	i := &instance{}
	cfg.Wrap(i.watches.wrap)
	cfg, i.group = group(cfg)
	var err error
	i.Manager, err = newManager(cfg, i.group, scheme, w.in("a"), w.in("a"), w.in("b"))
	w.must(err)
	w.must((&operator{}).setUp(w.Context(), i))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- i.Start(ctx) }()
	stopped := false
	i.stop = func() {
		cancel()
		if !stopped {
			stopped = true
			if err := <-ended; err != nil {
				w.Errorf("the manager ended with %v", err)
			}
		}
	}
	w.Cleanup(i.stop)
	return i
}

// state returns the size in a widget's config map, or "" without a config map.
func (w *world) state(ns, name string) string {
	var m corev1.ConfigMap
	err := w.Get(w.Context(), client.ObjectKey{Namespace: w.in(ns), Name: name}, &m)
	if apierrors.IsNotFound(err) {
		return ""
	}
	w.must(err)
	return m.Data["size"] + m.Data["seal"]
}

// reconciles changes widgets and their dependent objects.
func (w *world) reconciles(i *instance) {
	for n := range 5 {
		for _, ns := range []string{"a", "b"} {
			name := fmt.Sprintf("w%d", n)
			w.eventually("the config map of "+name, func() bool { return w.state(ns, name) == fmt.Sprint(n) })
		}
	}
	ctx, key := w.Context(), client.ObjectKey{Namespace: w.in("a"), Name: "w1"}
	w.must(w.Patch(ctx, &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}},
		client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"size":100}}`))))
	w.eventually("the new size", func() bool { return w.state("a", "w1") == "100" })
	w.must(w.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{"seal": "sealed"}}}))
	w.eventually("what only a secret's metadata shows", func() bool { return w.state("a", "w1") == "100sealed" })
	var owned corev1.ConfigMap
	w.must(w.Get(ctx, key, &owned))
	w.must(w.Delete(ctx, &owned))
	w.eventually("a deleted config map made again", func() bool {
		var again corev1.ConfigMap
		return w.Get(ctx, key, &again) == nil && again.UID != owned.UID
	})
	if got := w.state("elsewhere", "w1"); got != "" {
		w.Errorf("a widget of another namespace was reconciled: %q", got)
	}
}

// caches reads from the manager's cache in all forms.
func (w *world) caches(i *instance) {
	ctx, cached := w.Context(), i.GetClient()
	var found corev1.ConfigMapList
	w.eventually("config maps by their field", func() bool {
		w.must(cached.List(ctx, &found, client.InNamespace(w.in("a")), client.MatchingFields{bySize: "100"}))
		return len(found.Items) == 1 && found.Items[0].Name == "w1"
	})
	w.eventually("config maps of size 3 in two namespaces, each of which has a cache", func() bool {
		w.must(cached.List(ctx, &found, client.MatchingFields{bySize: "3"}))
		return len(found.Items) == 2
	})
	var widgets unstructured.UnstructuredList
	widgets.SetGroupVersionKind(widgetVersion.WithKind("WidgetList"))
	w.must(cached.List(ctx, &widgets))
	if len(widgets.Items) != 10 {
		w.Errorf("%d unstructured widgets in two namespaces", len(widgets.Items))
	}
	for _, u := range widgets.Items {
		if size, ok, err := unstructured.NestedInt64(u.Object, "spec", "size"); !ok || err != nil ||
			u.GroupVersionKind() != widgetVersion.WithKind("Widget") || size > 100 {
			w.Errorf("unstructured widget %v", u.Object)
		}
	}
	var secrets metav1.PartialObjectMetadataList
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	w.must(cached.List(ctx, &secrets, client.MatchingLabels{"seal": "sealed"}))
	if len(secrets.Items) != 1 || secrets.Items[0].GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Secret") {
		w.Errorf("metadata of secrets: %+v", secrets.Items)
	}
	var typed Widget
	w.must(cached.Get(ctx, client.ObjectKey{Namespace: w.in("b"), Name: "w2"}, &typed))
	if typed.Spec.Size != 2 || typed.Spec.Tags["color"] != "red" ||
		typed.GroupVersionKind() != widgetVersion.WithKind("Widget") {
		w.Errorf("a typed widget: %+v", typed)
	}
	status := i.group.Status()
	if len(status) < 8 { // widgets, typed and not, config maps and secrets, in two namespaces
		w.Errorf("our informers are %v", slices.Sorted(maps.Keys(status)))
	}
	w.eventually("live informers", func() bool {
		for _, s := range i.group.Status() {
			if s.State != health.Live && s.State != health.Quiet {
				return false
			}
		}
		return true
	})
	for name, s := range i.group.Status() {
		if len(s.Rejected) > 0 {
			w.Errorf("%s is %+v", name, s)
		}
	}
}

// elects stops the leader, and expects another instance to continue.
func (w *world) elects(leader, next *instance) {
	<-leader.Elected()
	select {
	case <-next.Elected():
		w.Fatal("there are two leaders")
	default:
	}
	leader.stop()
	select {
	case <-next.Elected():
	case <-time.After(deadline):
		w.Fatal("no instance became the leader")
	}
	w.create("b", "late", 42)
	w.eventually("what the next leader does", func() bool { return w.state("b", "late") == "42" })
}
