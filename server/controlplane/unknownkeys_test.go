package controlplane_test

import (
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/internal/testonly/child"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// A key that does not have the form of its resource's keys is ignored: lists and watches of each scope
// contain the objects of that scope only, before and after a restart.
func TestUnknownKeysAreIgnored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := controlplane.Options{DataDir: dir, Listen: child.Address(t)}
	server := start(t, options)
	c := connect(t, server.RESTConfig())
	newMap := func(namespace, name string) *corev1.ConfigMap {
		return must(c.typed.CoreV1().ConfigMaps(namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	}
	ns, other := newNamespace(t, c), newNamespace(t, c)
	first := newMap(ns, "a")
	newMap(other, "b")
	etcd := must(clientv3.New(clientv3.Config{Endpoints: server.EtcdCluster().Servers}))(t)
	defer etcd.Close()
	value := must(etcd.Get(t.Context(), "/registry/configmaps/"+other+"/b"))(t).Kvs[0].Value
	namespaces := len(must(c.typed.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}))(t).Items)
	namespace := must(etcd.Get(t.Context(), "/registry/namespaces/"+other))(t).Kvs[0].Value
	for _, key := range []string{"configmaps/unknown", "configmaps/" + ns, "configmaps/" + ns + "/x/y", "configmaps/" +
		ns + "//y", "configmaps/" + ns + "/", "configmaps//" + ns, "configmaps/0", "configmaps/zz"} {
		must(etcd.Put(t.Context(), "/registry/"+key, string(value)))(t)
	}
	for _, key := range []string{"namespaces/" + ns + "/unknown", "namespaces/0/unknown", "namespaces//unknown",
		"namespaces/unknown/"} {
		must(etcd.Put(t.Context(), "/registry/"+key, string(namespace)))(t)
	}
	must(etcd.Delete(t.Context(), "/registry/configmaps/zz"))(t)
	check := func() {
		t.Helper()
		all := []string{ns + "/a", other + "/b"}
		slices.Sort(all)
		for scope, want := range map[string][]string{ns: {ns + "/a"}, other: {other + "/b"}, "": all} {
			for _, version := range []string{"", "0"} {
				list := must(c.typed.CoreV1().ConfigMaps(scope).List(t.Context(), metav1.ListOptions{ResourceVersion: version}))(t)
				var got []string
				for _, o := range list.Items {
					got = append(got, o.Namespace+"/"+o.Name)
				}
				if !slices.Equal(got, want) {
					t.Errorf("the list of %q at %q has %q, want %q", scope, version, got, want)
				}
			}
		}
		page := must(c.typed.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1}))(t)
		rest := must(c.typed.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 10,
			Continue: page.Continue}))(t)
		if len(page.Items) != 1 || len(rest.Items) != 1 || page.RemainingItemCount == nil || *page.RemainingItemCount != 1 {
			t.Errorf("a page of %d, remaining %v, and one of %d", len(page.Items), page.RemainingItemCount, len(rest.Items))
		}
		if got := len(must(c.typed.CoreV1().Namespaces().List(t.Context(),
			metav1.ListOptions{}))(t).Items); got != namespaces {
			t.Errorf("the list has %d namespaces, want %d", got, namespaces)
		}
	}
	check()
	follow := func(scope string) {
		t.Helper()
		w := must(c.typed.CoreV1().ConfigMaps(scope).Watch(t.Context(),
			metav1.ListOptions{ResourceVersion: first.ResourceVersion}))(t)
		defer w.Stop()
		newMap(ns, "last")
		for e := range w.ResultChan() {
			o, ok := e.Object.(*corev1.ConfigMap)
			if !ok || e.Type != watch.Added || o.Name != "b" && o.Name != "last" {
				t.Errorf("the watch of %q sends %v", scope, e)
			}
			if !ok || o.Name == "last" {
				break
			}
		}
		if err := c.typed.CoreV1().ConfigMaps(ns).Delete(t.Context(), "last", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	follow(ns)
	etcd.Close()
	server.stop()
	start(t, options)
	check()
	follow("")
}
