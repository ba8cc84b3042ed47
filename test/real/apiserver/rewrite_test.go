package apiserver

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/test/peer"
)

// The first bytes of objects in etcd.
const (
	storedAsJSON   = "{"
	storedWithKeyA = "k8s:enc:secretbox:v1:a:"
	storedWithKeyB = "k8s:enc:secretbox:v1:b:"
)

// TestRewriteWhileWatching rewrites all objects through servers that store them in other forms, as a storage
// version migration does. Watches receive each write once, with the same content. A second rewrite
// writes nothing.
func TestRewriteWhileWatching(t *testing.T) {
	notShort(t)
	etcd := peer.StartEtcd(t)
	start := func(provider, other string, flags ...string) dynamic.ResourceInterface {
		path := writeEncryption(t, filepath.Join(t.TempDir(), "encryption.yaml"), provider, other)
		return client(t, peer.KeepwatchAPIServerOn(t, etcd, slices.Concat(common, flags,
			[]string{"--encryption-provider-config", path})...), configMapResource)
	}
	encrypting := start(secretbox("a"), identity)
	plain := start(identity, secretbox("a"), "--storage-media-type", "application/json")
	upstream := start(secretbox("a"), identity, "--reads=upstream")
	fill(t, encrypting, 20)
	before := list(t, encrypting)
	var watches []*watching
	for _, c := range []dynamic.ResourceInterface{encrypting, plain, upstream} {
		watches = append(watches, startWatch(t, c, before.GetResourceVersion()))
	}
	written := 0
	for _, step := range []struct {
		through dynamic.ResourceInterface
		stored  string
	}{{plain, storedAsJSON}, {encrypting, storedWithKeyA}, {plain, storedAsJSON}, {upstream, storedWithKeyA}} {
		if n := rewrite(t, step.through); n != len(before.Items) {
			t.Errorf("the rewrite as %s writes %d of %d objects", step.stored, n, len(before.Items))
		}
		if n := rewrite(t, step.through); n != 0 {
			t.Errorf("a second rewrite as %s writes %d objects", step.stored, n)
		}
		written += len(before.Items)
		checkStored(t, etcd, step.stored)
	}
	want := watches[0].events(t, written)
	for i, w := range watches[1:] {
		if got := w.events(t, written); !slices.Equal(summaries(got), summaries(want)) {
			t.Errorf("server %d has events\n%v\nserver 0\n%v", i+1, summaries(got), summaries(want))
		}
	}
	for _, e := range want {
		got := e.Object.(*unstructured.Unstructured)
		i := slices.IndexFunc(before.Items, func(o unstructured.Unstructured) bool { return o.GetName() == got.GetName() })
		if e.Type != watch.Modified || i < 0 || !sameContent(got, &before.Items[i]) {
			t.Errorf("a rewrite is the event %s of %v", e.Type, got)
		}
	}
}

// fill creates config maps.
func fill(t *testing.T, c dynamic.ResourceInterface, n int) {
	t.Helper()
	for i := range n {
		if _, err := c.Create(t.Context(), configMap(fmt.Sprintf("object-%02d", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func list(t *testing.T, c dynamic.ResourceInterface) *unstructured.UnstructuredList {
	t.Helper()
	all, err := c.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// rewrite updates all objects without changing them. It returns how many of them were written.
func rewrite(t *testing.T, c dynamic.ResourceInterface) int {
	t.Helper()
	written := 0
	for _, o := range list(t, c).Items {
		updated, err := c.Update(t.Context(), &o, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if updated.GetResourceVersion() != o.GetResourceVersion() {
			written++
		}
	}
	return written
}

// checkStored checks the first bytes of the config maps in etcd.
func checkStored(t *testing.T, etcd *peer.EtcdServer, prefix string) {
	t.Helper()
	c, err := etcd.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := c.Get(t.Context(), "/registry/configmaps/default/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		if !bytes.HasPrefix(kv.Value, []byte(prefix)) {
			t.Errorf("%s is stored as %.30q, want %q", kv.Key, kv.Value, prefix)
		}
	}
}

// sameContent reports whether two objects differ in their revision only.
func sameContent(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	a.SetResourceVersion("")
	b.SetResourceVersion("")
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}
