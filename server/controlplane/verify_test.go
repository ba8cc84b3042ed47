package controlplane_test

import (
	"bytes"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// Verify finds each detectable damage of an object, and nothing else.
func TestVerify(t *testing.T) {
	t.Parallel()
	owner := start(t, controlplane.Options{TemporaryEtcd: true})
	c := connect(t, owner.RESTConfig())
	gvr := newCRD(t, c, "verified")
	must(c.typed.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "victim"}}, metav1.CreateOptions{}))(t)
	must(c.dynamic.Resource(gvr).Namespace("default").Create(t.Context(),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gvr.GroupVersion().String(), "kind": "Verified", "metadata": map[string]any{"name": "custom"},
		}}, metav1.CreateOptions{}))(t)
	await.State(t, "the definition is registered", func() (bool, string) {
		_, err := apiServices(t, owner.RESTConfig()).Get(t.Context(), "v1."+gvr.Group, metav1.GetOptions{})
		return err == nil, "it is not"
	})
	etcd := etcdClient(t, clientv3.Config{Endpoints: owner.EtcdCluster().Servers})
	value := func(key string) []byte {
		answer := must(etcd.Get(t.Context(), key))(t)
		if len(answer.Kvs) != 1 {
			t.Fatalf("there is no %s", key)
		}
		return answer.Kvs[0].Value
	}
	options := controlplane.Options{Etcd: owner.EtcdCluster(), Verify: true}
	undamaged := start(t, options)
	// Four namespaces, a service, a definition and these two; 8 priority levels, 11 flow schemas, the APIServices, and two
	// priority classes.
	const stored = 8 + 8 + 11 + 23 + 2
	if objects, unknown := undamaged.Verified(); objects != stored || unknown != 0 {
		t.Errorf("verified %d objects and %d unknown keys", objects, unknown)
	}
	undamaged.stop()

	builtin, custom, namespace := "/registry/configmaps/default/victim", "/registry/"+gvr.Group+"/"+gvr.Resource+
		"/default/custom", "/registry/namespaces/default"
	for name, damage := range map[string]struct {
		key   string
		value []byte
		want  string
	}{
		"name": {builtin, bytes.Replace(value(builtin), []byte("victim"), []byte("vicuim"), 1),
			`the object is "default/vicuim"`},
		"namespace": {builtin, bytes.Replace(value(builtin), []byte("default"), []byte("defaulu"), 1),
			`the object is "defaulu/victim"`},
		"name of namespace": {namespace, bytes.Replace(value(namespace), []byte("default"), []byte("defaulu"), 1),
			`the object is "defaulu"`},
		"truncated": {builtin, value(builtin)[:40], ""},
		"empty":     {builtin, nil, ""},
		"another kind": {builtin, bytes.Replace(value(builtin), []byte("ConfigMap"), []byte("ConfigMaq"), 1),
			"ConfigMaq"},
		"not JSON": {custom, append([]byte("["), value(custom)[1:]...), ""},
		"another group": {custom, bytes.Replace(value(custom), []byte(gvr.Group), append([]byte("X"), gvr.Group[1:]...),
			1), "instead of "},
		"name of custom": {custom, bytes.Replace(value(custom), []byte("custom"), []byte("cusuom"), 1),
			`the object is "default/cusuom"`},
		"key":                {builtin + "x", value(builtin), `the object is "default/victim"`},
		"key with a level":   {builtin + "/x", value(builtin), `the object is "default/victim"`},
		"key without a name": {"/registry/configmaps/default", value(builtin), `the object is "default/victim"`},
	} {
		t.Run(name, func(t *testing.T) {
			before := must(etcd.Get(t.Context(), damage.key))(t)
			must(etcd.Put(t.Context(), damage.key, string(damage.value)))(t)
			err := runFails(t, options)
			if !strings.Contains(err.Error(), "1 of ") || !strings.Contains(err.Error(), `"`+damage.key+`": `) ||
				!strings.Contains(err.Error(), damage.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %q, want one line with %q", err, damage.want)
			}
			if len(before.Kvs) == 0 {
				must(etcd.Delete(t.Context(), damage.key))(t)
				return
			}
			must(etcd.Put(t.Context(), damage.key, string(before.Kvs[0].Value)))(t)
		})
	}
	must(etcd.Put(t.Context(), "/registry/regisury/x", "y"))(t)
	if objects, unknown := start(t, options).Verified(); objects != stored || unknown != 1 {
		t.Errorf("verified %d objects and %d unknown keys", objects, unknown)
	}
}
