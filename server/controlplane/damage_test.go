package controlplane_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// An object whose name or namespace differs from that of its key is not served under any name. Reads of
// it fail until it is written again or deleted.
func TestObjectNameDiffersFromKey(t *testing.T) {
	t.Parallel()
	server := start(t, controlplane.Options{TemporaryEtcd: true})
	c := connect(t, server.RESTConfig())
	etcd := etcdClient(t, clientv3.Config{Endpoints: server.EtcdCluster().Servers})
	maps := corev1.SchemeGroupVersion.WithResource("configmaps")
	custom := newCRD(t, c, "damaged")
	for name, damage := range map[string]struct {
		key, from, to string
		in            dynamic.ResourceInterface
		kind          string
	}{
		"name": {"/registry/configmaps/default/victim", "victim", "vicuim",
			c.dynamic.Resource(maps).Namespace("default"), "v1 ConfigMap"},
		"namespace": {"/registry/configmaps/default/victim", "default", "defaulu",
			c.dynamic.Resource(maps).Namespace("default"), "v1 ConfigMap"},
		"cluster-scoped": {"/registry/minions/victim", "victim", "vicuim",
			c.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("nodes")), "v1 Node"},
		"custom": {"/registry/" + custom.Group + "/damaged/default/victim", "victim", "vicuim",
			c.dynamic.Resource(custom).Namespace("default"), custom.GroupVersion().String() + " Damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			version, kind, _ := strings.Cut(damage.kind, " ")
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind,
				"metadata": map[string]any{"name": "victim"}}}
			o = must(damage.in.Create(t.Context(), o, metav1.CreateOptions{}))(t)
			value := must(etcd.Get(t.Context(), damage.key))(t).Kvs[0].Value
			damaged := bytes.Replace(value, []byte(damage.from), []byte(damage.to), 1)
			if bytes.Equal(value, damaged) {
				t.Fatalf("%q has no %q", value, damage.from)
			}
			must(etcd.Put(t.Context(), damage.key, string(damaged)))(t)
			refused := func(what string, err error) {
				t.Helper()
				if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), damage.key) ||
					strings.Contains(err.Error(), damage.to) {
					t.Errorf("%s: %v", what, err)
				}
			}
			_, err := damage.in.Get(t.Context(), "victim", metav1.GetOptions{})
			refused("a read", err)
			list, err := damage.in.List(t.Context(), metav1.ListOptions{})
			refused("a list", err)
			if list != nil && len(list.Items) > 0 {
				t.Errorf("a list has %v", list.Items)
			}
			w := must(damage.in.Watch(t.Context(), metav1.ListOptions{ResourceVersion: o.GetResourceVersion()}))(t)
			defer w.Stop()
			if e := <-w.ResultChan(); e.Type != watch.Error {
				t.Errorf("a watch sends %v %v", e.Type, e.Object)
			}
			must(etcd.Put(t.Context(), damage.key, string(value)))(t)
			if o = must(damage.in.Get(t.Context(), "victim", metav1.GetOptions{}))(t); o.GetName() != "victim" {
				t.Errorf("after it was restored, the object is %v", o)
			}
			must(0, damage.in.Delete(t.Context(), "victim", metav1.DeleteOptions{}))(t)
		})
	}
}

// A list that is too large to be measured before it is sent is refused because of a damaged object, too, with the
// error that names the object's key. It is complete again once the object was restored.
func TestLargeListsWithADamagedObject(t *testing.T) {
	t.Parallel()
	server := start(t, controlplane.Options{TemporaryEtcd: true})
	c := connect(t, server.RESTConfig())
	etcd := etcdClient(t, clientv3.Config{Endpoints: server.EtcdCluster().Servers})
	namespace := newNamespace(t, c)
	maps := c.typed.CoreV1().ConfigMaps(namespace)
	createMany(t, c, namespace, 300, func(i int) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("o%03d", i)},
			Data: map[string]string{"data": strings.Repeat("x", 1000)}}
	})
	key := "/registry/configmaps/" + namespace + "/o250"
	value := must(etcd.Get(t.Context(), key))(t).Kvs[0].Value
	must(etcd.Put(t.Context(), key, string(bytes.Replace(value, []byte("o250"), []byte("o251"), 1))))(t)
	list := func(accept, compression string) error {
		return c.typed.CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").
			SetHeader("Accept", accept).SetHeader("Accept-Encoding", compression).Do(t.Context()).Error()
	}
	for range 2 {
		for _, accept := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io",
			"application/vnd.kubernetes.protobuf"} {
			for _, compression := range []string{"identity", "gzip"} {
				if err := list(accept, compression); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), key) {
					t.Errorf("a list as %s, %s: %v", accept, compression, err)
				}
			}
		}
	}
	must(etcd.Put(t.Context(), key, string(value)))(t)
	if all := must(maps.List(t.Context(), metav1.ListOptions{}))(t); len(all.Items) != 300 {
		t.Errorf("after the object was restored, a list has %d objects", len(all.Items))
	}
}
