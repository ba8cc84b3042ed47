package storage_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/apis/example"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/consistency"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/storage"
)

const consistencyChecks = "apiserver_storage_consistency_checks_total"

// A cache that etcd has sent no event of a write, or of a deletion, finds the difference and lists again.
func TestLostEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		lose       func(*rig)
		wrong, end string // what lists show before and after the check
	}{
		{"creation", func(r *rig) { r.create("lost") }, "kept", "kept lost"},
		{"update", func(r *rig) { r.label("kept", "lost") }, "kept", "kept=lost"},
		{"deletion", func(r *rig) { r.delete("kept") }, "kept", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			of, etcd := uncounted(), &forgetful{}
			r := newRig(t, options{resource: of, dial: []grpc.DialOption{grpc.WithChainStreamInterceptor(etcd.intercept)}})
			checks := func(success, failure float64) {
				t.Helper()
				r.Interface.(*storage.Storage).CheckConsistency(t.Context())
				for status, want := range map[string]float64{"success": success, "failure": failure, "error": 0} {
					if got := metric(t, of, consistencyChecks, "status", status); got != want {
						t.Errorf("%v checks ended with %s, want %v", got, status, want)
					}
				}
			}
			r.create("kept")
			r.list(everything)
			checks(1, 0)

			etcd.losing.Store(true)
			c.lose(r)
			if got := r.shown(); got != c.wrong {
				t.Fatalf("the cache has %q although the event is lost, want %q", got, c.wrong)
			}
			etcd.losing.Store(false)
			checks(1, 1)
			await.True(t, "the cache lists again", func() bool { return r.shown() == c.end })
			if n := metric(t, of, "keepwatch_storage_relists_total", "reason", "protocol violation"); n != 1 {
				t.Errorf("the cache has listed %v times, want 1", n)
			}
			checks(2, 1)
		})
	}
}

// shown returns the names and labels in a consistent list.
func (r *rig) shown() string {
	var all []string
	for _, pod := range r.list(everything).Items {
		name := pod.Name
		for _, value := range pod.Labels {
			name += "=" + value
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// forgetful is an etcd that can lose events.
type forgetful struct{ losing atomic.Bool }

func (f *forgetful) intercept(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	streamer grpc.Streamer,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, conn, method, opts...)
	return forgetfulStream{stream, f}, err
}

type forgetfulStream struct {
	grpc.ClientStream
	etcd *forgetful
}

func (s forgetfulStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if watched, ok := m.(*pb.WatchResponse); ok && s.etcd.losing.Load() {
		watched.Events = slices.Delete(watched.Events, 0, len(watched.Events))
	}
	return err
}

// A check that etcd cannot answer is an error, and nothing is listed for it.
func TestConsistencyAtACompactedRevision(t *testing.T) {
	t.Parallel()
	of := uncounted()
	r := newRig(t, options{resource: of})
	r.create("a")
	r.list(everything)
	s := r.Interface.(*storage.Storage)
	// unless the cache has just reached a newer one
	await.True(t, "a check of a compacted revision is an error", func() bool {
		other := must(r.etcd.Client.Put(t.Context(), "/other", ""))(t)
		must(r.etcd.Client.Compact(t.Context(), other.Header.Revision))(t)
		s.CheckConsistency(t.Context())
		return metric(t, of, consistencyChecks, "status", "error") > 0
	})
	if err := s.GetList(t.Context(), "/pods/", everything, &example.PodList{}); err != nil {
		t.Error(err)
	}
	if n := metric(t, of, "keepwatch_storage_relists_total", "reason", "protocol violation"); n != 0 {
		t.Errorf("the cache has listed %v times, want 0", n)
	}
}

// Keys that belong to no object are no difference.
func TestConsistencyWithStrayKeys(t *testing.T) {
	t.Parallel()
	of := uncounted()
	r := newRig(t, options{resource: of})
	must(r.etcd.Client.Put(t.Context(), "/pods/no/object/at/all", "x"))(t)
	must(r.etcd.Client.Put(t.Context(), "/pods/ns/unreadable", "x"))(t)
	r.create("a")
	must(0, r.Get(t.Context(), "/pods/ns/a", apistorage.GetOptions{}, &example.Pod{}))(t)
	r.Interface.(*storage.Storage).CheckConsistency(t.Context())
	if n := metric(t, of, consistencyChecks, "status", "success"); n != 1 {
		t.Errorf("%v checks succeeded, want 1", n)
	}
}

// Checks are repeated while the storage runs. The period is a variable of the process, so this test runs alone.
func TestConsistencyIsCheckedRegularly(t *testing.T) {
	defer func(period time.Duration) { consistency.CheckPeriod = period }(consistency.CheckPeriod)
	consistency.CheckPeriod = time.Millisecond
	of := uncounted()
	r := newRig(t, options{resource: of})
	await.True(t, "the cache is checked twice", func() bool {
		return metric(t, of, consistencyChecks, "status", "success") >= 2
	})
	r.stop()
}
