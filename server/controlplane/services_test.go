package controlplane_test

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

func serviceOf(name string, kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: kind,
		Ports: []corev1.ServicePort{{Port: 80}}}}
}

// Services that are written at the same time, by creates, applies and updates of several clients, have an address each.
// Only the main resource gives addresses: a write of the status, even with another spec, does not.
func TestServiceAddresses(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	services := c.typed.CoreV1().Services(ns)
	var writers sync.WaitGroup
	for worker := range 6 {
		writers.Go(func() {
			for i := range 10 {
				name := fmt.Sprintf("s-%d-%d", worker, i)
				var err error
				switch worker % 3 {
				case 0:
					_, err = services.Create(t.Context(), serviceOf(name, corev1.ServiceTypeNodePort), metav1.CreateOptions{})
				case 1:
					_, err = services.Apply(t.Context(), applycorev1.Service(name,
						ns).WithSpec(applycorev1.ServiceSpec().WithType(corev1.ServiceTypeNodePort).
						WithPorts(applycorev1.ServicePort().WithPort(80))), metav1.ApplyOptions{FieldManager: "test"})
				default:
					if _, err = services.Create(t.Context(), serviceOf(name, corev1.ServiceTypeClusterIP),
						metav1.CreateOptions{}); err == nil {
						_, err = services.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec": {"type": "NodePort"}}`),
							metav1.PatchOptions{})
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	all := must(services.List(t.Context(), metav1.ListOptions{}))(t)
	owners := map[string]string{}
	for _, s := range all.Items {
		for _, address := range []string{s.Spec.ClusterIP, fmt.Sprint(s.Spec.Ports[0].NodePort)} {
			if other := owners[address]; other != "" || address == "" || address == "0" {
				t.Errorf("%s and %q have the address %q", s.Name, other, address)
			}
			owners[address] = s.Name
		}
	}
	if len(all.Items) != 60 {
		t.Errorf("%d services", len(all.Items))
	}

	s := all.Items[0]
	s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "", nil
	s.Status.Conditions = []metav1.Condition{{Type: "Own", Status: metav1.ConditionTrue, Reason: "Test",
		LastTransitionTime: metav1.Now()}}
	written := must(services.UpdateStatus(t.Context(), &s, metav1.UpdateOptions{}))(t)
	if written.Spec.ClusterIP != all.Items[0].Spec.ClusterIP || written.Spec.Type != corev1.ServiceTypeNodePort ||
		len(written.Status.Conditions) != 1 {
		t.Errorf("after a write of the status: %v", written)
	}
	wanted := serviceOf("taken", corev1.ServiceTypeClusterIP)
	wanted.Spec.ClusterIP = written.Spec.ClusterIP
	if _, err := services.Create(t.Context(), wanted, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a taken address: %v", err)
	}
	must(0, services.Delete(t.Context(), written.Name, metav1.DeleteOptions{}))(t)
	must(services.Create(t.Context(), wanted, metav1.CreateOptions{}))(t)
}

// Applying the same configuration again writes nothing: neither the addresses nor managedFields change.
func TestApplyServiceAgain(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	configuration := applycorev1.Service("s",
		ns).WithSpec(applycorev1.ServiceSpec().WithType(corev1.ServiceTypeLoadBalancer).
		WithExternalTrafficPolicy(corev1.ServiceExternalTrafficPolicyLocal).WithPorts(applycorev1.ServicePort().WithPort(80)))
	options := metav1.ApplyOptions{FieldManager: "test"}
	first := must(c.typed.CoreV1().Services(ns).Apply(t.Context(), configuration, options))(t)
	again := must(c.typed.CoreV1().Services(ns).Apply(t.Context(), configuration, options))(t)
	if first.ResourceVersion != again.ResourceVersion || first.Spec.HealthCheckNodePort == 0 {
		t.Errorf("the second apply wrote %v in place of %v", again, first)
	}
}

// What is stored says which addresses are taken: after a restart, too.
func TestServiceAddressesAfterRestart(t *testing.T) {
	t.Parallel()
	options := controlplane.Options{DataDir: t.TempDir(), ServiceClusterIPRange: "10.7.0.0/28,fd00::/112"}
	r := start(t, options)
	c := connect(t, r.RESTConfig())
	create := func(c clients, name string) (*corev1.Service, error) {
		return c.typed.CoreV1().Services("default").Create(t.Context(), serviceOf(name, corev1.ServiceTypeClusterIP),
			metav1.CreateOptions{})
	}
	own := must(c.typed.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}))(t)
	if own.Spec.ClusterIP != "10.7.0.1" || len(own.Spec.IPFamilies) != 1 {
		t.Errorf("the service kubernetes has %v", own.Spec)
	}
	for i := range 8 {
		must(create(c, fmt.Sprint("before-", i)))(t)
	}
	r.stop()
	r = start(t, options)
	c = connect(t, r.RESTConfig())
	for i := range 5 {
		must(create(c, fmt.Sprint("after-", i)))(t)
	}
	if _, err := create(c, "full"); !apierrors.IsInternalError(err) {
		t.Errorf("a full range: %v", err)
	}
	must(0, c.typed.CoreV1().Services("default").Delete(t.Context(), "before-3", metav1.DeleteOptions{}))(t)
	must(create(c, "full"))(t)
}

// A server starts whose own Service was deleted, and whose address another Service has, and also when no address is
// left.
func TestTakenAddressOfServer(t *testing.T) {
	t.Parallel()
	options := controlplane.Options{DataDir: t.TempDir(), ServiceClusterIPRange: "10.7.0.0/29"}
	r := start(t, options)
	services := connect(t, r.RESTConfig()).typed.CoreV1().Services("default")
	for _, full := range []bool{false, true} {
		must(0, services.Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}))(t)
		for i := range 6 {
			other := serviceOf(fmt.Sprint("other-", i), corev1.ServiceTypeClusterIP)
			other.Spec.ClusterIP = fmt.Sprint("10.7.0.", i+1)
			if _, err := services.Create(t.Context(), other, metav1.CreateOptions{}); err != nil && !apierrors.IsInvalid(err) {
				t.Fatal(err)
			}
			if !full {
				break
			}
		}
		r.stop()
		r = start(t, options)
		services = connect(t, r.RESTConfig()).typed.CoreV1().Services("default")
		switch own, err := services.Get(t.Context(), "kubernetes", metav1.GetOptions{}); {
		case full && !apierrors.IsNotFound(err):
			t.Errorf("a full range: %v", err)
		case !full && (err != nil || own.Spec.ClusterIP == "" || own.Spec.ClusterIP == "10.7.0.1"):
			t.Errorf("%v, %v", own, err)
		}
	}
}

func TestWrongServiceRange(t *testing.T) {
	if _, err := controlplane.New(controlplane.Options{ServiceClusterIPRange: "10.0.0.0"}); err == nil {
		t.Error("a range without a size is accepted")
	}
}
