package quotas

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/fake"
)

// known are quotas that exist, with the state that a client has.
type known struct{ client *fake.Clientset }

func (known) Any(context.Context, string) (bool, error) { return true, nil }

func (k known) List(ctx context.Context, namespace string) ([]corev1.ResourceQuota, error) {
	list, err := k.client.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (known) WaitForAny(context.Context) error { return nil }

// limited is a namespace with a quota of two pods and 10 GiB, a controller and a plugin.
type limited struct {
	*testing.T
	client *fake.Clientset
	plugin admission.ValidationInterface
}

func newLimited(t *testing.T) limited {
	client := fake.NewSimpleClientset(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: quantities("pods",
			"2", "requests.storage", "10Gi")},
	})
	var writes Writes
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	controller := NewController(client, nil, client.Discovery(), known{client}, &writes)
	go func() {
		defer close(done)
		controller.Run(ctx)
	}()
	stop := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		close(stop)
		<-done
	})
	l := limited{t, client, NewAdmission(client, known{client}, &writes, stop).(admission.ValidationInterface)}
	l.settle()
	l.wantUsed(0)
	return l
}

// settle waits until what happened before is in the status.
func (l limited) settle() {
	time.Sleep(2 * settleTime)
	synctest.Wait()
}

func (l limited) wantUsed(want int64) {
	l.Helper()
	q, err := l.client.CoreV1().ResourceQuotas("ns").Get(l.Context(), "q", metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	if used := q.Status.Used.Pods().Value(); used != want {
		l.Errorf("used: %d, want %d", used, want)
	}
}

func podNamed(name, version string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: version},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

// admit asks the plugin for the creation of a pod, in a request.
func (l limited) admit(request context.Context, name string) error {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	return l.plugin.Validate(request, admission.NewAttributesRecord(podNamed(name, "", ""), nil,
		corev1.SchemeGroupVersion.WithKind("Pod"),
		"ns", name, pods, "", admission.Create, &metav1.CreateOptions{}, false, nil), nil)
}

func (l limited) store(obj runtime.Object) {
	l.Helper()
	if err := l.client.Tracker().Add(obj); err != nil {
		l.Fatal(err)
	}
}

// A status that is computed while a pod is on the way to the storage does not forget it, however long that takes.
func TestWriteInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t)
		for _, name := range []string{"a", "b"} {
			if err := l.admit(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		l.store(podNamed("a", "5", corev1.PodPending))
		l.settle() // the controller sees a and the status, and b is still written
		l.wantUsed(2)
		if err := l.admit(t.Context(), "c"); err == nil {
			t.Error("a third pod is admitted")
		}
		l.store(podNamed("b", "6", corev1.PodPending))
		l.settle()
		l.wantUsed(2)
		ended := podNamed("a", "7", corev1.PodSucceeded)
		if err := l.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), ended, "ns"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l.wantUsed(1) // at once: no write is in progress
	})
}

// So does one that is computed while a claim is enlarged.
func TestEnlargementInProgress(t *testing.T) {
	claim := func(name, version, size string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: version},
			Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
				Requests: quantities("storage", size)}},
		}
	}
	claims := corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t)
		l.store(claim("large", "5", "4Gi"))
		l.store(claim("small", "6", "1Gi"))
		l.settle()
		if err := l.plugin.Validate(t.Context(), admission.NewAttributesRecord(claim("large", "5", "8Gi"),
			claim("large", "5", "4Gi"),
			corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "ns", "large", claims, "", admission.Update,
			&metav1.UpdateOptions{}, false, nil), nil); err != nil {
			t.Fatal(err)
		}
		if err := l.client.Tracker().Delete(claims, "ns", "small"); err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"in progress", "stored"} {
			l.settle()
			q, err := l.client.CoreV1().ResourceQuotas("ns").Get(t.Context(), "q", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if used := q.Status.Used[corev1.ResourceRequestsStorage]; used.String() != "8Gi" {
				t.Errorf("%s: used: %s, want 8Gi", what, used.String())
			}
			if err := l.client.Tracker().Update(claims, claim("large", "9", "8Gi"), "ns"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What a deleted object has used is given back.
func TestDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t)
		for _, name := range []string{"a", "b"} {
			if err := l.admit(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			l.store(podNamed(name, "5", corev1.PodPending))
		}
		l.settle()
		l.wantUsed(2)
		if err := l.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l.wantUsed(1) // at once: no write is in progress
		if err := l.admit(t.Context(), "c"); err != nil {
			t.Error(err)
		}
	})
}

// A write that is evaluated is not in a status before the plugin counts it, and a refused one never is.
func TestWritesThatAreNotCounted(t *testing.T) {
	var writes Writes
	pods := corev1.Resource("pods")
	names := func() (found []string) {
		for _, obj := range applied(writes.counted("ns", pods), []runtime.Object{podNamed("stored", "3", "")}) {
			found = append(found, obj.(metav1.Object).GetName())
		}
		slices.Sort(found)
		return found
	}
	begin := func(name string) func() {
		return writes.begin(t.Context(), admission.NewAttributesRecord(podNamed(name, "", ""), nil,
			corev1.SchemeGroupVersion.WithKind("Pod"),
			"ns", name, corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, &metav1.CreateOptions{}, false,
			nil))
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if got := names(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	refused := begin("a")
	expect("evaluated", "stored")
	writes.count("another")
	expect("counted in another namespace", "stored")
	writes.count("ns")
	expect("counted", "a", "stored")
	begin("b")
	expect("evaluated later", "a", "stored")
	refused()
	expect("refused", "stored")
	writes.count("ns")
	writes.seen(pods, podNamed("b", "4", ""))
	expect("seen", "stored")
	if len(writes.pending) != 0 {
		t.Errorf("%d sets are left", len(writes.pending))
	}
}

// What a failed request would have used is given back after it, also when it ends while the status is computed: one in
// twenty times.
func TestFailedWrite(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			l := newLimited(t)
			request, end := context.WithCancel(t.Context())
			if err := l.admit(request, "a"); err != nil {
				t.Fatal(err)
			}
			l.settle()
			l.wantUsed(1)
			end()
			l.settle()
			l.wantUsed(0)
		})
	}
}
