package informer_test

import (
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

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer"
	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// object is the common interface of the three kinds of objects.
type object interface {
	runtime.Object
	metav1.Object
}

// Each kind of object, from discovery to the audit, on a real API.
func TestOnKubernetes(t *testing.T) {
	cfg := kubernetesAPI(t)
	client := kubernetes.NewForConfigOrDie(cfg)
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), podtest.ConfigMap("first"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	t.Run("typed", func(t *testing.T) { follows[*corev1.ConfigMap](t, cfg, client, "t") })
	t.Run("unstructured", func(t *testing.T) {
		follows[*unstructured.Unstructured](t, cfg, client, "u", informer.Resource(configMaps))
	})
	t.Run("metadata", func(t *testing.T) {
		follows[*metav1.PartialObjectMetadata](t, cfg, client, "m", informer.Resource(configMaps))
	})
}

func follows[T object](t *testing.T, cfg *rest.Config, client kubernetes.Interface, name string,
	options ...informer.Option) {
	inf, err := informer.New[T](cfg, append(options, informer.Namespace("default"), informer.DropManagedFields())...)
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	registration, err := inf.Handle(func(_ context.Context, c informer.Change[T]) error {
		if c.Object.GetName() != name {
			return nil
		}
		if len(c.Object.GetManagedFields()) > 0 {
			t.Error("it has managed fields")
		}
		lines <- fmt.Sprintf("%s %v", c.Type, c.FinalStateUnknown)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	podtest.RunTyped(t, inf)
	<-registration.Synced()
	if _, ok := inf.Get("default", "first"); !ok {
		t.Errorf("the object is missing: %q", names(inf.All()))
	}
	all := client.CoreV1().ConfigMaps("default")
	if _, err := all.Create(t.Context(), podtest.ConfigMap(name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	changed := podtest.ConfigMap(name)
	changed.Data["k"] = "w"
	if _, err := all.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := all.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var events []string
	for range 3 {
		events = append(events, <-lines)
	}
	if want := []string{"ADDED false", "MODIFIED false", "DELETED false"}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	if audit, err := inf.Audit(t.Context()); err != nil || !audit.Equal() || audit.Objects == 0 {
		t.Errorf("%+v, %v", audit, err)
	}
	if s := inf.Status(); s.State != health.Live || len(s.Rejected) > 0 || s.Relists[keepwatch.ProtocolViolation] > 0 {
		t.Errorf("%+v", s)
	}
}

func names[T interface{ GetName() string }](objects func(func(T) bool)) (all []string) {
	for o := range objects {
		all = append(all, o.GetName())
	}
	return all
}
