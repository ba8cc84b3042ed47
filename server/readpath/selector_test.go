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

// keyServer is a transformer that can't decrypt states that contain a text, while it is down.
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

// A selector that met an unreadable object matches it by its labels once it can be read: a resuming watch
// then receives the objects that match, and no others.
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
				t.Errorf("while the object can't be read: %s", got)
			}
			keys.down.Store(false)
			w := r.watch(query)
			if e := w.next(); e.Type != watch.Added || e.Object.Namespace != "team" ||
				e.Object.ResourceVersion != hidden.GetResourceVersion() {
				t.Errorf("the watch received %+v, want team/hidden", e)
			}
			r.update("default", "hidden", withLabel("tier", "c"))
			r.delete("default", "hidden")
			out := r.update("team", "hidden", withLabel("tier", "c"))
			if e := w.next(); e.Type != watch.Deleted || e.Object.Namespace != "team" ||
				e.Object.ResourceVersion != out.GetResourceVersion() {
				t.Errorf("the watch received %+v, want DELETED team/hidden", e)
			}
		})
	}
}

// A watch with a selector ends with an error at a change whose new or prior state can't be read. The
// error does not name the object. Once both can be read, a watch from the same revision receives the
// events that match.
func TestSelectorsEndAtUnreadableObjects(t *testing.T) {
	is := func(tier string) func(metav1.Object) { return withLabel("tier", tier) }
	for name, test := range map[string]struct {
		before string // the object's tier; "" if it does not exist
		change func(*rig) metav1.Object
		all    string // received by a watch without a selector
		failed string // received by a watch with a selector
		later  string // received with a selector once the object can be read
	}{
		"created": {"", func(r *rig) metav1.Object { return r.create("default", "o", is("secret")) },
			"ERROR InternalError", "ERROR InternalError", ""},
		"made unreadable": {"b", func(r *rig) metav1.Object { return r.update("default", "o", is("secret")) },
			"ERROR InternalError", "ERROR InternalError", ""},
		"selected, unreadable": {"a", func(r *rig) metav1.Object { return r.update("default", "o", is("secret")) },
			"ERROR InternalError", "ERROR InternalError", "DELETED o"},
		"readable, selected": {"secret", func(r *rig) metav1.Object { return r.update("default", "o", is("a")) },
			"MODIFIED o", "ERROR InternalError", "ADDED o"},
		"readable, not selected": {"secret", func(r *rig) metav1.Object { return r.update("default", "o", is("b")) },
			"MODIFIED o", "ERROR InternalError", ""},
		"deleted": {"secret", func(r *rig) metav1.Object { return r.delete("default", "o") },
			"ERROR StorageReadError", "ERROR StorageReadError", ""},
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
			live := map[string]*watchClient{"": r.watch(since), "&labelSelector=tier%3Da": r.watch(since +
				"&labelSelector=tier%3Da")}
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
			if lines(got) != test.later {
				t.Errorf("once it can be read: received %s, want %s", lines(got), test.later)
			}
		})
	}
}

// If an object can't be read, a list is delegated to etcd3, which fails, and a watch with initial events
// ends with an error: neither shows the object nor omits it.
func TestSelectorsOfAnUnreadableState(t *testing.T) {
	keys := newKeyServer("secret")
	r := newRig(t, pods, options{transformer: keys})
	r.create("default", "o", withLabel("tier", "secret"))
	r.waitFor(r.create("default", "p", withLabel("tier", "a")))
	initial := "timeoutSeconds=600&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	for _, selector := range []string{"", "&labelSelector=tier%3Da"} {
		for _, limit := range []string{"", "&limit=1"} {
			before := r.delegated.Load()
			if answer, body := r.get(r.path("")+"?timeoutSeconds=60"+selector+limit,
				accept("application/json")); r.delegated.Load() != before+1 {
				t.Errorf("a list %q was answered %s: %s", selector+limit, answer.Status, body)
			}
		}
		if got := lines(r.watch(initial + selector).readToEnd()); !strings.HasSuffix(got, "ERROR InternalError") ||
			strings.Contains(got, "ADDED o") {
			t.Errorf("initial events %q: %s", selector, got)
		}
	}
	keys.down.Store(false)
	if answer, body := r.get(r.path("")+"?labelSelector=tier%3Da",
		accept("application/json")); answer.StatusCode != http.StatusOK || strings.Contains(string(body), "secret") {
		t.Errorf("a list was answered %s: %s", answer.Status, body)
	}
}

// A watch with a selector whose client falls behind the history does not end: it receives the objects
// that entered and left its selection since then, and no others. So does a watch that resumes from
// there.
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
	for i := range 20 { // 8 MB that the slow client does not read
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
	for i := range 20 { // one at a time, so that the window drops all earlier changes
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
			objects, received := maps.Clone(state), 0
			for e := w.next(); ; e = w.next() {
				received++
				_, known := objects[e.Object.Name]
				switch {
				case e.Object.Labels["tier"] != "a":
					t.Fatalf("the selector hides %s", brief(e)+": "+e.Object.Message)
				case known != (e.Type != watch.Added):
					t.Errorf("%s, known: %v", brief(e), known)
				case e.Type == watch.Deleted:
					delete(objects, e.Object.Name)
					if e.Object.Name == "leaves" && e.Object.ResourceVersion != left.GetResourceVersion() {
						t.Errorf("%s at %s, want %s", brief(e), e.Object.ResourceVersion, left.GetResourceVersion())
					}
				default:
					objects[e.Object.Name] = e.Object.ResourceVersion
				}
				if e.Object.ResourceVersion == last.GetResourceVersion() {
					break
				}
			}
			if received > 40 {
				t.Errorf("%d events are the history, not the difference", received)
			}
			for o := range r.storage.Cache().Snapshot().All() {
				if name := o.Key().Name; objects[name] != "" != (name == "enters" || name == "returns" || name == "stays" ||
					name == "last") || objects[name] != "" && objects[name] != o.Revision().String() {
					t.Errorf("%s: the watch is at %q, the object at %v", name, objects[name], o.Revision())
				}
				delete(objects, o.Key().Name)
			}
			if len(objects) > 0 {
				t.Errorf("not reported as deleted: %v", objects)
			}
		})
	}
}
