package audit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/server/judge/audit"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
)

// lossy is a source whose watches lack some changes.
type lossy struct {
	*kube.Source
	lose func(keepwatch.Change) bool
}

func (l lossy) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	w, err := l.Source.Watch(ctx, from)
	if err != nil {
		return nil, err
	}
	return lossyWatch{w, l.lose}, nil
}

type lossyWatch struct {
	keepwatch.Watch
	lose func(keepwatch.Change) bool
}

func (w lossyWatch) Next() (keepwatch.Batch, error) {
	b, err := w.Watch.Next()
	b.Changes = slices.DeleteFunc(b.Changes, w.lose)
	return b, err
}

// follow runs a stream with a state in dir until it has delivered the revision.
func follow(t *testing.T, dir string, id stream.Identity, until keepwatch.Revision, lose func(keepwatch.Change) bool) {
	t.Helper()
	source, err := kube.New(api, kube.Options{Resource: configMaps, Namespace: id.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	state, err := stream.Open(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	changes, err := stream.New(reached{stream.NDJSON(io.Discard, "configmaps"), until, stop}, state,
		stream.Options{Bookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := reflector.New(lossy{source, lose}, changes, reflector.Options{}).Run(ctx); !errors.Is(err,
		context.Canceled) {
		t.Fatal(err)
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
}

// reached ends a run when a message at the revision was written.
type reached struct {
	stream.Sink
	revision keepwatch.Revision
	stop     func()
}

func (r reached) Write(m stream.Message) error {
	switch m := m.(type) {
	case stream.Event:
		if m.Revision >= r.revision {
			r.stop()
		}
	case stream.Synced:
		if m.Revision >= r.revision {
			r.stop()
		}
	}
	return r.Sink.Write(m)
}

func update(t *testing.T, client kubernetes.Interface, o *corev1.ConfigMap) *corev1.ConfigMap {
	t.Helper()
	updated, err := client.CoreV1().ConfigMaps(o.Namespace).Update(t.Context(), o, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return updated
}

func revisionOf(t *testing.T, o metav1.Object) keepwatch.Revision {
	t.Helper()
	revision, err := keepwatch.ParseRevision(o.GetResourceVersion())
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// compareState compares the API with the state in dir.
func compareState(t *testing.T, server *rest.Config, dir string, id stream.Identity) (*audit.Report, error) {
	t.Helper()
	index, err := stream.OpenIndex(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	return audit.State(t.Context(), server, index, audit.Options{Resource: configMaps, Namespace: id.Namespace,
		PageSize: 7})
}

// TestState compares a server with the states of three streams: a correct one, one that has lost a
// deletion, and one that has lost an update and a creation.
func TestState(t *testing.T) {
	const namespace = "state"
	client := fill(t, api, namespace, 20)
	maps := client.CoreV1().ConfigMaps(namespace)
	id := stream.Identity{Cluster: stream.Cluster{Server: api.Host}, Resource: "configmaps", Namespace: namespace}
	start, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	begin, err := keepwatch.ParseRevision(start.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	everything := func(keepwatch.Change) bool { return false }
	losses := map[string]func(keepwatch.Change) bool{
		"correct":         everything,
		"lost a deletion": func(c keepwatch.Change) bool { return c.Type == keepwatch.Deleted },
		"lost writes": func(c keepwatch.Change) bool {
			return c.Type != keepwatch.Deleted && (c.Object.Key().Name == "item-004" || c.Object.Key().Name == "new")
		},
	}
	dirs := map[string]string{}
	for name := range losses {
		dirs[name] = t.TempDir()
		follow(t, dirs[name], id, begin, everything)
	}

	if err := maps.Delete(t.Context(), "item-003", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o := start.Items[4].DeepCopy()
	o.Labels["n"] = "changed"
	update(t, client, o)
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	last := update(t, client, start.Items[9].DeepCopy()) // changes nothing: it has the revision of before
	last.Labels["n"] = "last"
	end := revisionOf(t, update(t, client, last))
	want := map[string][]string{
		"correct":         {},
		"lost a deletion": {namespace + "/item-003 extra"},
		"lost writes": {namespace + "/item-004 different metadata.labels.n,metadata.resourceVersion", namespace +
			"/new missing"},
	}
	for name, lose := range losses {
		follow(t, dirs[name], id, end, lose)
		r, err := compareState(t, api, dirs[name], id)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := differences(r); !slices.Equal(got, want[name]) || r.Revision != end || r.Server.Objects != 20 {
			t.Errorf("%s: got %q at %v of %d objects", name, got, r.Revision, r.Server.Objects)
		}
		if got := r.Server.Digest == r.Against.Digest; got != (name == "correct") {
			t.Errorf("%s: digests %s and %s", name, r.Server.Digest, r.Against.Digest)
		}
	}
	// The other reads of a state: with Kubernetes' own watch cache, and of a server without its revision.
	if r, err := compareState(t, twin, dirs["correct"], id); err != nil || !r.Equal() {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestStateOfAnotherHistory compares a state with servers that lack its revision.
func TestStateOfAnotherHistory(t *testing.T) {
	audit.ShortWaits(t)
	const namespace = "history"
	fill(t, api, namespace, 3)
	id := stream.Identity{Cluster: stream.Cluster{Server: api.Host}, Resource: "configmaps", Namespace: namespace}
	dir := t.TempDir()
	follow(t, dir, id, 1, func(keepwatch.Change) bool { return false })
	for _, c := range []struct {
		code         int
		reason, text string
		kind         keepwatch.FailureKind
		want         string
	}{
		{410, "Expired", "too old resource version", keepwatch.Expired, "run the stream until SYNCED first"},
		{504, "Timeout", "Too large resource version", keepwatch.RevisionTooLarge,
			"lags behind, or was restored from a backup"},
	} {
		t.Run(fmt.Sprint(c.code), func(t *testing.T) {
			server := statusServer(t, c.code, c.reason, c.text)
			_, err := compareState(t, server, dir, id)
			wantFailure(t, err, c.kind, c.want)
			if !strings.Contains(err.Error(), server.Host) {
				t.Errorf("%q has no address", err)
			}
		})
	}
}
