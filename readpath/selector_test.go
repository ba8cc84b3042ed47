package readpath

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// keyServer is a transformer that cannot decrypt the states in which a text occurs, while
// it is down.
type keyServer struct {
	value.Transformer
	text []byte
	down atomic.Bool
}

func newKeyServer(text string) *keyServer {
	k := &keyServer{Transformer: identity.NewEncryptCheckTransformer(), text: []byte(text)}
	k.down.Store(true)
	return k
}

func (k *keyServer) TransformFromStorage(ctx context.Context, data []byte, about value.Context) ([]byte, bool, error) {
	if k.down.Load() && bytes.Contains(data, k.text) {
		return nil, false, fmt.Errorf("the key of %s: %w", about.AuthenticatedData(), errors.ErrUnsupported)
	}
	return k.Transformer.TransformFromStorage(ctx, data, about)
}

// brief formats an event.
func brief(e watchEvent) string {
	return strings.TrimSpace(fmt.Sprint(e.Type, " ", e.Object.Name, e.Object.Reason))
}

func lines(all []watchEvent) string {
	var b []string
	for _, e := range all {
		b = append(b, brief(e))
	}
	return strings.Join(b, ", ")
}

// A selector never shows an object because it could not be read when the selector first met
// it. Once it can be read, a resuming watch receives what matches and nothing else.
func TestSelectorsOfObjectsThatBecomeReadable(t *testing.T) {
	for name, k := range map[string]kind{"protobuf": pods, "JSON": widgets, "as in etcd": statefulSets} {
		t.Run(name, func(t *testing.T) {
			keys := newKeyServer("hidden")
			r := newRig(t, k, options{transformer: keys})
			first := r.create("default", "first")
			r.create("default", "hidden", withLabel("tier", "b"))
			hidden := r.create("team", "hidden", withLabel("tier", "a"))
			r.waitFor(hidden)
			query := "timeoutSeconds=600&labelSelector=tier%3Da&resourceVersion=" + first.GetResourceVersion()
			if got := lines(r.watch(query).readToEnd()); got != "ERROR InternalError" {
				t.Errorf("while it cannot be read: %s", got)
			}
			keys.down.Store(false)
			w := r.watch(query)
			if e := w.next(); e.Type != watch.Added || e.Object.Namespace != "team" || e.Object.ResourceVersion != hidden.GetResourceVersion() {
				t.Errorf("the watch received %+v, want team/hidden", e)
			}
			r.update("default", "hidden", withLabel("tier", "c"))
			r.delete("default", "hidden")
			out := r.update("team", "hidden", withLabel("tier", "c"))
			if e := w.next(); e.Type != watch.Deleted || e.Object.Namespace != "team" || e.Object.ResourceVersion != out.GetResourceVersion() {
				t.Errorf("the watch received %+v, want that team/hidden left", e)
			}
		})
	}
}

// A watch with a selector ends with an error at a change that it cannot judge, whether the
// new state cannot be read or the prior one. The error does not name the object. When both
// can be read, a watch from the same revision receives what it would have.
func TestSelectorsEndAtUnreadableObjects(t *testing.T) {
	is := func(tier string) func(metav1.Object) { return withLabel("tier", tier) }
	for name, test := range map[string]struct {
		before string // the object's tier; "" if it does not exist
		change func(*rig) metav1.Object
		all    string // what a watch of everything receives
		failed string // and one with a selector
		healed string // and that when the object can be read
	}{
		"created":                {"", func(r *rig) metav1.Object { return r.create("default", "o", is("secret")) }, "ERROR InternalError", "ERROR InternalError", ""},
		"made unreadable":        {"b", func(r *rig) metav1.Object { return r.update("default", "o", is("secret")) }, "ERROR InternalError", "ERROR InternalError", ""},
		"selected, unreadable":   {"a", func(r *rig) metav1.Object { return r.update("default", "o", is("secret")) }, "ERROR InternalError", "ERROR InternalError", "DELETED o"},
		"readable, selected":     {"secret", func(r *rig) metav1.Object { return r.update("default", "o", is("a")) }, "MODIFIED o", "ERROR InternalError", "ADDED o"},
		"readable, not selected": {"secret", func(r *rig) metav1.Object { return r.update("default", "o", is("b")) }, "MODIFIED o", "ERROR InternalError", ""},
		"deleted":                {"secret", func(r *rig) metav1.Object { return r.delete("default", "o") }, "ERROR StorageReadError", "ERROR StorageReadError", ""},
	} {
		t.Run(name, func(t *testing.T) {
			keys := newKeyServer("secret")
			r := newRig(t, pods, options{transformer: keys})
			begin := r.create("default", "begin")
			if test.before != "" {
				begin = r.create("default", "o", is(test.before))
			}
			r.waitFor(begin)
			since := "timeoutSeconds=600&resourceVersion=" + begin.GetResourceVersion()
			live := map[string]*watchClient{"": r.watch(since), "&labelSelector=tier%3Da": r.watch(since + "&labelSelector=tier%3Da")}
			r.waitFor(test.change(r))
			for query, w := range live {
				want := test.all
				if query != "" {
					want = test.failed
				}
				for _, w := range []*watchClient{w, r.watch(since + query)} {
					e := w.next()
					if got := brief(e); got != want {
						t.Errorf("%q: received %s, want %s", query, got, want)
					}
					if e.Type == watch.Error && query != "" && strings.Contains(e.Object.Message, "default/o") {
						t.Errorf("the error names the object: %s", e.Object.Message)
					}
				}
			}
			keys.down.Store(false)
			last := r.create("default", "last", is("a"))
			w := r.watch(since + "&labelSelector=tier%3Da")
			var got []watchEvent
			for e := w.next(); e.Object.ResourceVersion != last.GetResourceVersion(); e = w.next() {
				got = append(got, e)
			}
			if lines(got) != test.healed {
				t.Errorf("when it can be read: received %s, want %s", lines(got), test.healed)
			}
		})
	}
}

// A list, and the initial events of a watch, do not show an object that cannot be judged,
// nor leave it out: a list is passed on to etcd3, which fails, and a watch ends with an error.
func TestSelectorsOfAnUnreadableState(t *testing.T) {
	keys := newKeyServer("secret")
	r := newRig(t, pods, options{transformer: keys})
	r.create("default", "o", withLabel("tier", "secret"))
	r.waitFor(r.create("default", "p", withLabel("tier", "a")))
	initial := "timeoutSeconds=600&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	for _, selector := range []string{"", "&labelSelector=tier%3Da"} {
		for _, limit := range []string{"", "&limit=1"} {
			before := r.delegated.Load()
			if answer, body := r.get(r.path("")+"?timeoutSeconds=60"+selector+limit, accept("application/json")); r.delegated.Load() != before+1 {
				t.Errorf("a list %q was answered %s: %s", selector+limit, answer.Status, body)
			}
		}
		if got := lines(r.watch(initial + selector).readToEnd()); !strings.HasSuffix(got, "ERROR InternalError") || strings.Contains(got, "ADDED o") {
			t.Errorf("initial events %q: %s", selector, got)
		}
	}
	keys.down.Store(false)
	if answer, body := r.get(r.path("")+"?labelSelector=tier%3Da", accept("application/json")); answer.StatusCode != http.StatusOK || strings.Contains(string(body), "secret") {
		t.Errorf("a list was answered %s: %s", answer.Status, body)
	}
}

// A watch with a selector whose reader falls behind the history is not cut off: it receives
// what has entered and left its selection since, and nothing else. So does a watch that
// resumes from as far back.
func TestSelectorsBehindTheHistory(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 25<<10) // 400 KiB
	is := func(tier string) func(metav1.Object) {
		return func(m metav1.Object) {
			m.SetLabels(map[string]string{"tier": tier})
			m.SetAnnotations(map[string]string{"note": large + m.GetName()})
		}
	}
	r := newRig(t, pods, options{store: store.Options{WindowBytes: 1 << 20}})
	for _, name := range []string{"leaves", "deleted", "returns", "stays", "relabelled-then-deleted"} {
		r.create("default", name, withLabel("tier", "a"))
	}
	r.create("default", "enters", withLabel("tier", "b"))
	begin := r.create("default", "hidden", withLabel("tier", "b"))
	state := map[string]string{"leaves": "", "deleted": "", "returns": "", "stays": "", "relabelled-then-deleted": ""}
	since := "timeoutSeconds=600&labelSelector=tier%3Da&resourceVersion=" + begin.GetResourceVersion()
	slow := r.stalled(since)
	for i := range 20 { // 8 MB that the slow reader does not read
		r.update("default", "stays", func(m metav1.Object) { is("a")(m); m.SetGenerateName(fmt.Sprint(i)) })
	}
	left := r.update("default", "leaves", withLabel("tier", "c"))
	r.update("default", "leaves", withLabel("tier", "d"))
	r.update("default", "returns", withLabel("tier", "b"))
	r.update("default", "relabelled-then-deleted", withLabel("tier", "b"))
	r.delete("default", "relabelled-then-deleted")
	r.update("default", "hidden", withLabel("tier", "c"))
	r.delete("default", "hidden")
	r.delete("default", "deleted")
	r.update("default", "enters", withLabel("tier", "a"))
	r.update("default", "returns", withLabel("tier", "a"))
	for i := range 20 { // each by itself, so that the window drops all before
		r.waitFor(r.update("default", "stays", func(m metav1.Object) { is("a")(m); m.SetGenerateName(fmt.Sprint(i)) }))
	}
	last := r.create("default", "last", withLabel("tier", "a"))
	r.waitFor(last)
	if history, _ := r.storage.Cache().Bounds(); history <= must(keepwatch.ParseRevision(left.GetResourceVersion()))(t) {
		t.Fatalf("the history goes back to %v", history)
	}
	for name, w := range map[string]*watchClient{"live": slow, "resuming": r.watch(since)} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			held, told := maps.Clone(state), 0
			for e := w.next(); ; e = w.next() {
				told++
				_, known := held[e.Object.Name]
				switch {
				case e.Object.Labels["tier"] != "a":
					t.Fatalf("the selector hides %s", brief(e)+": "+e.Object.Message)
				case known != (e.Type != watch.Added):
					t.Errorf("%s, known: %v", brief(e), known)
				case e.Type == watch.Deleted:
					delete(held, e.Object.Name)
					if e.Object.Name == "leaves" && e.Object.ResourceVersion != left.GetResourceVersion() {
						t.Errorf("%s at %s, want %s", brief(e), e.Object.ResourceVersion, left.GetResourceVersion())
					}
				default:
					held[e.Object.Name] = e.Object.ResourceVersion
				}
				if e.Object.ResourceVersion == last.GetResourceVersion() {
					break
				}
			}
			if told > 40 {
				t.Errorf("%d events are the history, not the difference", told)
			}
			for o := range r.storage.Cache().Snapshot().All() {
				if name := o.Key().Name; held[name] != "" != (name == "enters" || name == "returns" || name == "stays" || name == "last") || held[name] != "" && held[name] != o.Revision().String() {
					t.Errorf("%s: held at %q, is at %v", name, held[name], o.Revision())
				}
				delete(held, o.Key().Name)
			}
			if len(held) > 0 {
				t.Errorf("held, but gone: %v", held)
			}
		})
	}
}
