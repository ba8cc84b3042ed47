package conformance

import (
	"context"
	"errors"
	"flag"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/server/judge/conform"
	"github.com/keepwatch/keepwatch/test/peer"
)

// TestConform judges Kubernetes.
func TestConform(t *testing.T) { judge(t, peer.Kubernetes(t), "encoding.cbor") }

// TestConformLatest judges keepwatch-apiserver, which is the newest Kubernetes with Keepwatch's reads or
// with its own.
func TestConformLatest(t *testing.T) {
	for reads, notOffered := range map[string][]string{
		"keepwatch": {"encoding.cbor", "pages.expired"}, // its history reaches back to the first revision
		"upstream":  {"encoding.cbor"},
	} {
		t.Run(reads, func(t *testing.T) {
			judge(t, peer.KeepwatchAPIServerOn(t, peer.StartEtcd(t), "--reads="+reads), notOffered...)
		})
	}
}

// TestMalformedWatch checks that the finding docs/findings/watch-malformed-revision.md is still true.
func TestMalformedWatch(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(peer.SharedKubernetes(t).Config())
	for path, want := range map[string]int32{
		"/api/v1/configmaps?watch=true&timeoutSeconds=1&resourceVersion=first": 500,
		"/api/v1/configmaps?resourceVersion=first":                             400,
	} {
		err := client.CoreV1().RESTClient().Get().RequestURI(path).Do(t.Context()).Error()
		if status := apierrors.APIStatus(nil); !errors.As(err, &status) || status.Status().Code != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

var slowFlag = flag.Bool("conformance.slow", false,
	"judge a server whose watchers never arrive at its state, too: minutes")

// TestRestored judges servers whose etcd is restored from a snapshot between the writes: the acknowledged writes
// behind the snapshot are lost.
func TestRestored(t *testing.T) {
	kubernetes := func(t *testing.T, etcd *peer.EtcdServer) *peer.Server { return peer.KubernetesOn(t, etcd) }
	keepwatch := func(t *testing.T, etcd *peer.EtcdServer) *peer.Server { return peer.KeepwatchAPIServerOn(t, etcd) }
	bumped := []string{"--bump-revision", "1000000", "--mark-compacted"}
	for _, c := range []struct {
		name     string
		start    func(*testing.T, *peer.EtcdServer) *peer.Server
		flags    []string        // of the restore
		watchers conform.Verdict // whether all watchers arrive at the restored state
	}{
		{"kube-apiserver", kubernetes, nil, conform.Broken}, // kubernetes #107457
		{"kube-apiserver, bumped", kubernetes, bumped, conform.Kept},
		{"keepwatch-apiserver", keepwatch, nil, conform.Kept},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.watchers == conform.Broken && !*slowFlag {
				t.Skip("conform waits for watchers that never arrive: see -conformance.slow")
			}
			etcd := peer.StartEtcd(t)
			server := c.start(t, etcd)
			// ConfigMaps are enough
			disturb := sync.OnceValue(func() error { return restored(t.Context(), t.TempDir(), etcd, server, c.flags) })
			report, err := conform.Run(t.Context(), server.Config(), conform.Options{
				Watchers: 40, Writes: 800, Progress: func(line string) { t.Log(line) },
				Disturb: func(context.Context) error { return disturb() },
			})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]conform.Verdict{"storm.durable": conform.Broken, "storm.state": c.watchers,
				"storm.disturbed": c.watchers}
			for _, one := range report.Results {
				if verdict, ok := want[one.Rule.ID]; ok && one.Verdict != verdict {
					t.Errorf("%s is %v, want %v: %v", one.Rule.ID, one.Verdict, verdict, one.Facts)
				} else if ok {
					t.Logf("%s is %v: %v", one.Rule.ID, one.Verdict, one.Facts[:min(2, len(one.Facts))])
				}
			}
		})
	}
}

// restored takes a snapshot, waits for 50 writes that it does not have, and restores etcd from it.
func restored(ctx context.Context, dir string, etcd *peer.EtcdServer, server *peer.Server, flags []string) error {
	file := filepath.Join(dir, "snapshot")
	newest, err := etcd.Snapshot(ctx, file)
	if err != nil {
		return err
	}
	client, err := etcd.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	for event := range client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(newest+1)) {
		if err := event.Err(); err != nil {
			return err
		}
		if event.Header.Revision >= newest+50 {
			break
		}
	}
	server.Kill()
	if err := etcd.RestoreSnapshot(ctx, file, flags...); err != nil {
		return err
	}
	return server.Restart(ctx)
}

// judge fails the test if a server that is killed and restarted between the writes does not keep all rules.
// It may refuse what the rules notOffered are about: CBOR is behind a feature gate that is off by default.
func judge(t *testing.T, server *peer.Server, notOffered ...string) {
	if _, err := server.Compact(t.Context()); err != nil { // continue tokens can expire then
		t.Fatal(err)
	}
	report, err := conform.Run(t.Context(), server.Config(), conform.Options{
		Watchers: 60, Writes: 600, Progress: func(line string) { t.Log(line) },
		Disturb: func(ctx context.Context) error {
			server.Kill()
			return server.Restart(ctx)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := version.ParseSemantic(report.Version); err != nil {
		t.Error(err)
	}
	for _, one := range report.Results {
		want := conform.Kept
		if slices.Contains(notOffered, one.Rule.ID) {
			want = conform.NotOffered
		}
		if one.Verdict != want {
			t.Errorf("%s is %v: %v", one.Rule.ID, one.Verdict, one.Facts)
		}
	}
}
