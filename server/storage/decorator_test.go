package storage_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/keepwatch/keepwatch/server/storage"
)

// An API server gets its storages by one line in its RESTOptions, and destroys each
// once for every subresource.
func TestDecorator(t *testing.T) {
	t.Parallel()
	config := storagebackend.NewDefaultConfig("/registry", protobufCodec())
	config.Transport.ServerList = runEtcd(t).Endpoints()
	config.CompactionInterval = 0
	options := generic.RESTOptions{Decorator: storage.Decorator(counts)}
	open := func(resource string) (apistorage.Interface, func()) {
		s, destroy, err := options.Decorator(config.ForResource(schema.GroupResource{Resource: resource}), "/"+resource,
			keyOf("/"+resource),
			newPod, newPodList, podAttrs, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(destroy)
		return s, destroy
	}
	pods, destroyPods := open("pods")
	others, destroyOthers := open("others")
	create := func(s apistorage.Interface, prefix, name string) {
		t.Helper()
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		if err := s.Create(t.Context(), prefix+"/ns/"+name, pod, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	create(pods, "/pods", "a")
	create(others, "/others", "b")
	for s, key := range map[apistorage.Interface]string{pods: "/pods", others: "/others"} {
		into := &example.PodList{}
		if err := s.GetList(t.Context(), key, everything, into); err != nil || len(into.Items) != 1 {
			t.Errorf("%s has %v, %v", key, into.Items, err)
		}
	}
	destroyPods()
	destroyPods()
	into := &example.PodList{}
	if err := others.GetList(t.Context(), "/others", everything, into); err != nil || len(into.Items) != 1 {
		t.Errorf("after the end of pods others are %v, %v", into.Items, err)
	}
	destroyOthers()

	config.Transport.CertFile = "/no/such/file"
	if _, _, err := options.Decorator(config.ForResource(schema.GroupResource{Resource: "pods"}), "/pods", keyOf("/pods"),
		newPod, newPodList, podAttrs, nil, nil); err == nil {
		t.Error("a missing certificate is no error")
	}
}

// keyOf names pods as an API server's registry does.
func keyOf(prefix string) func(runtime.Object) (string, error) {
	return func(o runtime.Object) (string, error) {
		pod := o.(*example.Pod)
		return prefix + "/" + pod.Namespace + "/" + pod.Name, nil
	}
}

// Namespaced detects the namespace in the keys of an API server.
func TestNamespaced(t *testing.T) {
	t.Parallel()
	for made, want := range map[string]string{
		"/pods/namespace/name": "true <nil>", "/pods/name": "false <nil>",
		"/pods/namespace/name/x": "false error", "/name": "false error", "/pods/other/name": "false error",
	} {
		for _, prefix := range []string{"/pods", "/pods/"} {
			namespaced, err := storage.Namespaced(func(runtime.Object) (string, error) { return made, nil }, newPod, prefix)
			if got := fmt.Sprint(namespaced, " ", err); got != want && (err == nil || want != "false error") {
				t.Errorf("%s below %s: %s, want %s", made, prefix, got, want)
			}
		}
	}
}

// New fails for an invalid configuration.
func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	valid := storage.Config{Client: r.etcd.Client, Etcd: r.Interface, ResourcePrefix: "/pods", Codec: r.options.codec,
		NewFunc: newPod, GetAttrs: podAttrs}
	if _, err := storage.New(valid); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*storage.Config){
		"no client":       func(c *storage.Config) { c.Client = nil },
		"no codec":        func(c *storage.Config) { c.Codec = nil },
		"empty prefix":    func(c *storage.Config) { c.ResourcePrefix = "/" },
		"relative prefix": func(c *storage.Config) { c.ResourcePrefix = "pods" },
		"another codec": func(c *storage.Config) {
			c.Codec = codecs.LegacyCodec(schema.GroupVersion{Group: "other", Version: "v1"})
		},
	} {
		invalid := valid
		spoil(&invalid)
		if _, err := storage.New(invalid); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}
