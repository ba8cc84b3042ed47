package apiserver

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// TestInformedPods requires that the server's own pods have all but managed fields.
func TestInformedPods(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "one", Labels: map[string]string{"app": "web"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: &metav1.FieldsV1{Raw: []byte("{}")}}},
		},
		Spec: corev1.PodSpec{NodeName: "node", ServiceAccountName: "builder"},
	}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(pod), time.Hour)
	if err := dropManagedFields(factory.Core().V1().Pods()); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	got, err := factory.Core().V1().Pods().Lister().Pods("default").Get("one")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.ManagedFields) != 0 {
		t.Errorf("the pod has managed fields: %v", got.ManagedFields)
	}
	if got.Labels["app"] != "web" || got.Spec.NodeName != "node" || got.Spec.ServiceAccountName != "builder" {
		t.Errorf("the pod lost more than managed fields: %+v", got)
	}
}
