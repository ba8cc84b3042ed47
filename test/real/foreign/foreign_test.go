// Package foreign tests keepwatch serve on the etcd of another cluster.
package foreign

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// A server on a cluster's etcd shows the cluster's objects, refuses writes, and does not
// change etcd: not even a namespace whose deletion only the cluster's controllers may
// finish.
func TestClusterIsNotChanged(t *testing.T) {
	etcd := peer.StartEtcd(t)
	cluster := peer.KubernetesOn(t, etcd)
	theirs := client(t, cluster)
	ctx := t.Context()
	if _, err := theirs.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	finalized := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held"}, Data: map[string]string{"a": "theirs"}}
	if _, err := theirs.CoreV1().ConfigMaps("going").Create(ctx, finalized, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := theirs.CoreV1().Namespaces().Delete(ctx, "going", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster.Kill()                            // it would continue to write
	if err := etcd.Restart(ctx); err != nil { // its last requests are no longer executed
		t.Fatal(err)
	}
	revokeLeases(t, etcd)
	before := revision(t, etcd)

	server := peer.Serve(t, "--etcd-servers", string(etcd.Endpoint))
	maps := client(t, server).CoreV1().ConfigMaps("going")
	read, err := maps.Get(ctx, "held", metav1.GetOptions{})
	if err != nil || read.Data["a"] != "theirs" {
		t.Errorf("read %v, %v", read, err)
	}
	for name, write := range map[string]func(context.Context) error{
		"create": func(ctx context.Context) error {
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ours"}}, metav1.CreateOptions{})
			return err
		},
		"dry run": func(ctx context.Context) error {
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ours"}},
				metav1.CreateOptions{DryRun: []string{"All"}})
			return err
		},
		"update": func(ctx context.Context) error {
			_, err := maps.Update(ctx, finalized, metav1.UpdateOptions{})
			return err
		},
		"patch": func(ctx context.Context) error {
			_, err := maps.Patch(ctx, "held", types.MergePatchType, []byte(`{"data":{"a":"ours"}}`), metav1.PatchOptions{})
			return err
		},
		"delete": func(ctx context.Context) error { return maps.Delete(ctx, "held", metav1.DeleteOptions{}) },
		"delete all": func(ctx context.Context) error {
			return maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	} {
		if err := write(ctx); !apierrors.IsMethodNotSupported(err) {
			t.Errorf("%s: %v, want 405", name, err)
		}
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	if after := revision(t, etcd); after != before {
		t.Errorf("etcd was at revision %d, and is at %d now: %q", before, after, changed(t, etcd, before))
	}
	if log, err := os.ReadFile(server.Log()); err != nil || !bytes.Contains(log, []byte("keepwatch: read-only: ")) {
		t.Errorf("the log does not say that the server is read-only: %s %v", log, err)
	}
}

func client(t *testing.T, s *peer.Server) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// revokeLeases deletes the keys that would expire, such as the API server's entry under masterleases after 15 s.
func revokeLeases(t *testing.T, etcd *peer.EtcdServer) {
	t.Helper()
	c, err := etcd.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	leases, err := c.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases.Leases {
		if _, err := c.Revoke(t.Context(), lease.ID); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Fatal(err)
		}
	}
}

func revision(t *testing.T, etcd *peer.EtcdServer) int64 {
	t.Helper()
	c, err := etcd.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	now, err := c.Get(t.Context(), "any")
	if err != nil {
		t.Fatal(err)
	}
	return now.Header.Revision
}

// changed returns the keys that were written after a revision.
func changed(t *testing.T, etcd *peer.EtcdServer, revision int64) (keys []string) {
	t.Helper()
	c, err := etcd.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := c.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		if kv.ModRevision > revision {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}
