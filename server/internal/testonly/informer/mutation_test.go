package informer_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer"
	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// plainConfigMap is a ConfigMap that can only be read from JSON.
type plainConfigMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Data              map[string]string `json:"data"`
}

func (p *plainConfigMap) DeepCopyObject() runtime.Object {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// scribble overwrites the managed fields of an object in place with the object's name. It
// returns the fields before.
func scribble(o object) (before []string) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		managers, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields")
		for _, m := range managers.([]any) {
			fields := m.(map[string]any)["fieldsV1"].(map[string]any)
			before = append(before, fmt.Sprint(fields))
			clear(fields)
			fields[o.GetName()] = true
		}
		return before
	}
	for _, m := range o.GetManagedFields() {
		raw := m.FieldsV1.GetRawBytes()
		before = append(before, string(raw))
		copy(raw, scribbled(o.GetName(), len(raw)))
	}
	return before
}

// scribbled returns JSON of a given length that contains a name.
func scribbled(name string, length int) []byte {
	text := bytes.Repeat([]byte(name[:1]), length)
	text[0], text[length-1] = '"', '"'
	return text
}

// ownFields reports whether an object has the fields that scribble gave it.
func ownFields(o object) bool {
	if u, ok := o.(*unstructured.Unstructured); ok {
		managers, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields")
		return !slices.ContainsFunc(managers.([]any), func(m any) bool {
			fields := m.(map[string]any)["fieldsV1"].(map[string]any)
			return len(fields) != 1 || fields[o.GetName()] != true
		})
	}
	return !slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		raw := m.FieldsV1.GetRawBytes()
		return !bytes.Equal(raw, scribbled(o.GetName(), len(raw)))
	})
}

// A transform may change its object in place: no other object changes, neither a cached one that
// is read meanwhile nor one that arrives later.
func TestTransformsChangeInPlace(t *testing.T) {
	cfg := kubernetesAPI(t)
	configMaps := informer.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	own := runtime.NewScheme()
	own.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("ConfigMap"), &plainConfigMap{})
	for name, options := range map[string]struct {
		typed  []informer.Option
		shared []clientgo.Option
	}{
		"plain":   {},
		"compact": {[]informer.Option{informer.Compact()}, []clientgo.Option{clientgo.Compact()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("protobuf", func(t *testing.T) { changesInPlace[*corev1.ConfigMap](t, cfg, options.typed...) })
			t.Run("JSON", func(t *testing.T) {
				changesInPlace[*plainConfigMap](t, cfg, append(options.typed, configMaps, informer.Scheme(own))...)
			})
			t.Run("unstructured", func(t *testing.T) {
				changesInPlace[*unstructured.Unstructured](t, cfg, append(options.typed, configMaps)...)
			})
			t.Run("metadata", func(t *testing.T) {
				changesInPlace[*metav1.PartialObjectMetadata](t, cfg, append(options.typed, configMaps)...)
			})
			t.Run("clientgo", func(t *testing.T) { changesInPlaceShared(t, cfg, options.shared...) })
		})
	}
}

// transformed checks the object that a transform receives, and overwrites its fields.
func transformed(t *testing.T, o object) {
	const want, tree = `{"f:data":{".":{},"f:k":{}}}`, "map[f:data:map[.:map[] f:k:map[]]]"
	for _, before := range scribble(o) {
		if before != want && before != tree {
			t.Errorf("%s has fields %q before its transform", o.GetName(), before)
		}
	}
}

func changesInPlace[T object](t *testing.T, cfg *rest.Config, options ...informer.Option) {
	namespace := namespaceOf(t, cfg, "a", "b")
	inf, err := informer.New[T](cfg, append(options, informer.Namespace(namespace), informer.Fields(ownConfigMaps),
		informer.Transform(func(o T) (T, error) {
			transformed(t, o)
			return o, nil
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	podtest.RunTyped(t, inf)
	<-inf.Synced()
	arriving(t, cfg, namespace, func() (all []object) {
		for o := range inf.All() {
			all = append(all, o)
		}
		return all
	})
}

func changesInPlaceShared(t *testing.T, cfg *rest.Config, options ...clientgo.Option) {
	cfg, direct := clientgo.Direct(cfg)
	group := clientgo.NewGroup(append(options, direct)...)
	client := kubernetes.NewForConfigOrDie(cfg)
	namespace := namespaceOf(t, cfg, "a", "b")
	lw := cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", namespace,
		func(o *metav1.ListOptions) { o.FieldSelector = ownConfigMaps })
	inf := group.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, nil)
	if err := inf.SetTransform(func(o any) (any, error) {
		transformed(t, o.(object))
		return o, nil
	}); err != nil {
		t.Fatal(err)
	}
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	arriving(t, cfg, namespace, func() (all []object) {
		for _, o := range inf.GetStore().List() {
			all = append(all, o.(object))
		}
		return all
	})
}

// ownConfigMaps selects the config maps of a test: the server's controllers create another one in each namespace.
const ownConfigMaps = "metadata.name!=kube-root-ca.crt"

// namespaceOf creates a namespace with config maps that have equal managed fields.
func namespaceOf(t *testing.T, cfg *rest.Config, names ...string) string {
	client := kubernetes.NewForConfigOrDie(cfg)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "in-place-"}}
	made, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		must(t)(client.CoreV1().ConfigMaps(made.Name).Create(t.Context(), podtest.ConfigMap(name), metav1.CreateOptions{}))
	}
	return made.Name
}

// arriving creates more config maps while the cached ones are read.
func arriving(t *testing.T, cfg *rest.Config, namespace string, all func() []object) {
	check := func() (n int) {
		for _, o := range all() {
			if !ownFields(o) {
				t.Errorf("%s has the fields of another object", o.GetName())
			}
			n++
		}
		return n
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			check()
		}
	}()
	client := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(namespace)
	for _, name := range []string{"c", "d", "e"} {
		must(t)(client.Create(t.Context(), podtest.ConfigMap(name), metav1.CreateOptions{}))
	}
	podtest.Eventually(t, func() bool { return len(all()) == 5 }, func() string {
		return fmt.Sprint(len(all()), " objects")
	})
	stop()
	<-stopped
	check()
}

func must(t *testing.T) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}
