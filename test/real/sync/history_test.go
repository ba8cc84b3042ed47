package sync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// history is what etcd has stored of the types of a storm.
type history struct {
	mu      sync.Mutex
	writes  map[string][]write // by resource, in order
	newest  keepwatch.Revision // of any key
	problem error              // that has ended it
}

// write is one revision of an object.
type write struct {
	name     string
	revision keepwatch.Revision
	deleted  bool
	before   keepwatch.Revision // of a deletion: that of the last state
}

// followHistory records what etcd stores from now on, until the test ends.
func followHistory(t *testing.T, s *storm) *history {
	t.Helper()
	client, err := s.server.Etcd().Client()
	if err != nil {
		t.Fatal(err)
	}
	h := &history{writes: map[string][]write{}}
	last := map[string]keepwatch.Revision{} // key → revision
	responses := client.Watch(clientv3.WithRequireLeader(t.Context()), "/registry/", clientv3.WithPrefix())
	var following sync.WaitGroup
	following.Go(func() {
		for r := range responses {
			h.mu.Lock()
			h.problem = r.Err()
			for _, e := range r.Events {
				h.add(e, last)
			}
			h.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		client.Close()
		following.Wait()
	})
	return h
}

func (h *history) add(e *clientv3.Event, last map[string]keepwatch.Revision) {
	revision := keepwatch.Revision(e.Kv.ModRevision)
	h.newest = max(h.newest, revision)
	key := string(e.Kv.Key)
	for _, k := range kinds {
		name, ok := strings.CutPrefix(key, "/registry/"+k.resource.Resource+"/storm/")
		if !ok { // a custom resource has its group in the key
			name, ok = strings.CutPrefix(key, "/registry/"+k.resource.Group+"/"+k.resource.Resource+"/storm/")
		}
		if !ok {
			continue
		}
		resource := k.resource.GroupResource().String()
		h.writes[resource] = append(h.writes[resource], write{name, revision, e.Type == clientv3.EventTypeDelete, last[key]})
		last[key] = revision
	}
}

// complete waits until everything is recorded that was written before the call, and returns it.
func (h *history) complete(t *testing.T, s *storm) map[string][]write {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.server.Config())
	if err != nil {
		t.Fatal(err)
	}
	marker, err := client.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "marker-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	revision, err := keepwatch.ParseRevision(marker.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	h.waitFor(t, revision)
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.writes)
}

// waitFor waits until everything up to a revision is recorded.
func (h *history) waitFor(t *testing.T, revision keepwatch.Revision) {
	t.Helper()
	await.State(t, "etcd's history is read", func() (bool, string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.problem != nil {
			t.Fatalf("etcd's history up to %d of %d was read: %v", h.newest, revision, h.problem)
		}
		return h.newest >= revision, fmt.Sprintf("up to %d of %d", h.newest, revision)
	})
}

// received is everything that a sink has received: the states in their order, and the gaps.
type received struct {
	states []sinktest.State
	gaps   map[string][]stream.Gap // by resource
}

// inGap reports whether a revision of a resource is in a gap.
func (r *received) inGap(resource string, at keepwatch.Revision) bool {
	return slices.ContainsFunc(r.gaps[resource], func(g stream.Gap) bool { return g.From < at && at <= g.To })
}

// judge compares what a sink has received with etcd's history since a revision at which it had everything: outside of
// gaps each state is there, and each deletion with the state before it. Every object that exists is there, and none
// that was deleted.
func (r *received) judge(t *testing.T, writes map[string][]write, since keepwatch.Revision) {
	t.Helper()
	type place struct {
		resource string
		revision keepwatch.Revision
	}
	stored := map[place]sinktest.State{}
	for _, s := range r.states {
		stored[place{s.Resource, s.Revision}] = s
	}
	var problems []string
	states, deletions, missing, gaps := 0, 0, 0, 0
	for resource, all := range writes {
		gaps += len(r.gaps[resource])
		for _, w := range all {
			if w.revision <= since {
				continue
			}
			if r.inGap(resource, w.revision) {
				missing++
				continue
			}
			at := w.revision
			if w.deleted {
				at = w.before
				deletions++
			} else {
				states++
			}
			s, ok := stored[place{resource, at}]
			switch {
			case !ok && w.deleted && r.inGap(resource, at):
			case !ok || s.Name != w.name:
				problems = append(problems, fmt.Sprintf("%s %s at %d is missing: %+v", resource, w.name, at, w))
			case w.deleted && !s.Deleted:
				problems = append(problems, fmt.Sprintf("%s %s at %d: its deletion at %d is missing", resource, w.name, at,
					w.revision))
			}
		}
	}
	for i, p := range problems {
		if i < 10 {
			t.Error(p)
		}
	}
	t.Logf("%d states and %d deletions, and %d more in %d gaps; %d states were received; %d problems", states, deletions,
		missing, gaps, len(r.states), len(problems))
	if states == 0 || deletions == 0 || gaps == 0 {
		t.Error("a part of the judgment had nothing to judge")
	}
}

// revision returns the newest revision of etcd.
func (s *storm) revision(ctx context.Context) (keepwatch.Revision, error) {
	client, err := s.server.Etcd().Client()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	answer, err := client.Get(ctx, "none")
	if err != nil {
		return 0, err
	}
	return keepwatch.Revision(answer.Header.Revision), nil
}
