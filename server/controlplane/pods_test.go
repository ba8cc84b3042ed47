package controlplane_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// podPhase creates a pod with labels in a phase, ready or not.
func podPhase(t *testing.T, c clients, ns, name string, phase corev1.PodPhase, ready corev1.ConditionStatus) {
	t.Helper()
	pod := testPod(name)
	pod.Labels = map[string]string{"app": "a"}
	pod = must(c.typed.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	pod.Status.Phase = phase
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	must(c.typed.CoreV1().Pods(ns).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}))(t)
}

// budget creates a PodDisruptionBudget of the pods with app=a, whose status allows a number of disruptions.
func budget(t *testing.T, c clients, ns, name string, allowed int32) {
	t.Helper()
	one := intstr.FromInt32(1)
	b := must(c.typed.PolicyV1().PodDisruptionBudgets(ns).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
	}, metav1.CreateOptions{}))(t)
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: allowed,
		DesiredHealthy: 1, CurrentHealthy: 1 + allowed, ExpectedPods: 1 + allowed}
	must(c.typed.PolicyV1().PodDisruptionBudgets(ns).UpdateStatus(t.Context(), b, metav1.UpdateOptions{}))(t)
}

func evict(t *testing.T, c clients, ns, name string, options *metav1.DeleteOptions) error {
	t.Helper()
	return c.typed.PolicyV1().Evictions(ns).Evict(t.Context(),
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, DeleteOptions: options})
}

// A budget lets as many pods go as it allows, and counts them.
func TestEviction(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	for _, name := range []string{"one", "two", "held"} {
		podPhase(t, c, ns, name, corev1.PodRunning, corev1.ConditionTrue)
	}
	podPhase(t, c, ns, "pending", corev1.PodPending, corev1.ConditionFalse)
	podPhase(t, c, ns, "unready", corev1.PodRunning, corev1.ConditionFalse)
	budget(t, c, ns, "b", 1)

	if err := evict(t, c, ns, "one", &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("as a dry run: %v", err)
	}
	must(c.typed.CoreV1().Pods(ns).Get(t.Context(), "one", metav1.GetOptions{}))(t)
	if err := evict(t, c, ns, "one", nil); err != nil {
		t.Errorf("an allowed eviction: %v", err)
	}
	err := evict(t, c, ns, "two", nil)
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); !apierrors.IsTooManyRequests(err) || !ok ||
		cause.Message != "The disruption budget b does not allow evicting pods currently" {
		t.Errorf("an eviction too many: %v", err)
	}
	for _, name := range []string{"pending", "unready"} { // no disruptions
		if err := evict(t, c, ns, name, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.typed.CoreV1().Pods(ns).Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an evicted pod: %v", err)
	}
	b := must(c.typed.PolicyV1().PodDisruptionBudgets(ns).Get(t.Context(), "b", metav1.GetOptions{}))(t)
	if _, counted := b.Status.DisruptedPods["one"]; b.Status.DisruptionsAllowed != 0 || len(b.Status.DisruptedPods) != 1 ||
		!counted {
		t.Errorf("the budget's status is %+v", b.Status)
	}

	budget(t, c, ns, "second", 5)
	if err := evict(t, c, ns, "two", nil); !apierrors.IsInternalError(err) &&
		!strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
		t.Errorf("with two budgets: %v", err)
	}
	if err := c.typed.PolicyV1beta1().Evictions(ns).Evict(t.Context(), &policyv1beta1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: ns, Name: "held"},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	}); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
		t.Errorf("of the version before: %v", err)
	}
	if err := evict(t, c, ns, "missing", nil); !apierrors.IsNotFound(err) {
		t.Errorf("a missing pod: %v", err)
	}
}

// An eviction marks a pod that a finalizer holds, and respects preconditions.
func TestEvictionOfHeldPod(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	pod := testPod("held")
	pod.Finalizers = []string{"example.com/hold"}
	pod = must(c.typed.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	old := pod.ResourceVersion
	pod.Labels = map[string]string{"b": "c"}
	pod = must(c.typed.CoreV1().Pods(ns).Update(t.Context(), pod, metav1.UpdateOptions{}))(t)
	if err := evict(t, c, ns, "held",
		&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &old}}); !apierrors.IsConflict(err) {
		t.Errorf("at an old version: %v", err)
	}
	if err := evict(t, c, ns, "held",
		&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &pod.ResourceVersion}}); err != nil {
		t.Errorf("at the version: %v", err)
	}
	pod = must(c.typed.CoreV1().Pods(ns).Get(t.Context(), "held", metav1.GetOptions{}))(t)
	if len(pod.Status.Conditions) != 1 || pod.Status.Conditions[0].Type != corev1.DisruptionTarget ||
		pod.DeletionTimestamp == nil {
		t.Errorf("the pod is %+v", pod)
	}
	must(c.typed.CoreV1().Pods(ns).Patch(t.Context(), "held", "application/merge-patch+json",
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
}

// A scheduler assigns a pod to a node once.
func TestBinding(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	pod := must(c.typed.CoreV1().Pods(ns).Create(t.Context(), testPod("p"), metav1.CreateOptions{}))(t)
	bind := func(b *corev1.Binding) error {
		return c.typed.CoreV1().Pods(ns).Bind(t.Context(), b, metav1.CreateOptions{})
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "other",
		Annotations: map[string]string{"a": "b"}}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	if err := bind(binding); !apierrors.IsConflict(err) {
		t.Errorf("with another UID: %v", err)
	}
	binding.UID = pod.UID
	if err := bind(binding); err != nil {
		t.Fatal(err)
	}
	pod = must(c.typed.CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{}))(t)
	if pod.Spec.NodeName != "n" || pod.Annotations["a"] != "b" || len(pod.Status.Conditions) != 1 ||
		pod.Status.Conditions[0].Type != corev1.PodScheduled {
		t.Errorf("the pod is %+v", pod)
	}
	if err := bind(binding); !apierrors.IsConflict(err) ||
		!strings.Contains(err.Error(), `pod p is already assigned to node "n"`) {
		t.Errorf("a second time: %v", err)
	}
	must(c.typed.CoreV1().Pods(ns).Create(t.Context(), testPod("q"), metav1.CreateOptions{}))(t)
	legacy := c.typed.CoreV1().RESTClient().Post().Namespace(ns).Resource("bindings").
		Body(&corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Target: corev1.ObjectReference{Name: "n"}})
	if err := legacy.Do(t.Context()).Error(); err != nil {
		t.Errorf("by bindings: %v", err)
	}
	if got := must(c.typed.CoreV1().Pods(ns).Get(t.Context(), "q", metav1.GetOptions{}))(t).Spec.NodeName; got != "n" {
		t.Errorf("bound by bindings to %q", got)
	}
	if err := bind(&corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "missing"},
		Target: corev1.ObjectReference{Name: "n"}}); !apierrors.IsNotFound(err) {
		t.Errorf("a missing pod: %v", err)
	}
}

// A pod on a node gets a deletion timestamp, and is deleted without a grace period by its kubelet. Other pods are
// deleted at once, as are those of a deleted namespace, in which nothing waits for a kubelet.
func TestDeletionOfPods(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	pods := c.typed.CoreV1().Pods(ns)
	create := func(name, node string, edit func(*corev1.Pod)) {
		pod := testPod(name)
		pod.Spec.NodeName = node
		edit(pod)
		must(pods.Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	}
	as := func(*corev1.Pod) {}
	seconds := func(n int64) *metav1.DeleteOptions { return metav1.NewDeleteOptions(n) }
	for _, q := range []struct {
		name, node string
		edit       func(*corev1.Pod)
		options    *metav1.DeleteOptions
		grace      int64 // 0: it is deleted
	}{
		{"unassigned", "", as, seconds(60), 0},
		{"default", "n", as, &metav1.DeleteOptions{}, 30},
		{"given", "n", as, seconds(60), 60},
		{"own", "n", func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = new(int64)
			*p.Spec.TerminationGracePeriodSeconds = 7
		}, &metav1.DeleteOptions{}, 7},
		{"none", "n", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64) }, &metav1.DeleteOptions{}, 0},
		{"forced", "n", as, seconds(0), 0},
		{"negative", "n", as, seconds(-1), 1},
	} {
		create(q.name, q.node, q.edit)
		if err := pods.Delete(t.Context(), q.name, *q.options); err != nil {
			t.Errorf("%s: %v", q.name, err)
			continue
		}
		pod, err := pods.Get(t.Context(), q.name, metav1.GetOptions{})
		switch {
		case q.grace == 0 && !apierrors.IsNotFound(err):
			t.Errorf("%s is %v, %v", q.name, pod.ObjectMeta, err)
		case q.grace == 0:
		case err != nil || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != q.grace ||
			pod.DeletionTimestamp == nil:
			t.Errorf("%s is %+v, %v", q.name, pod.ObjectMeta, err)
		}
	}
	create("ended", "n", as)
	must(pods.Patch(t.Context(), "ended", "application/merge-patch+json", []byte(`{"status":{"phase":"Succeeded"}}`),
		metav1.PatchOptions{}, "status"))(t)
	if err := pods.Delete(t.Context(), "ended", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := pods.Get(t.Context(), "ended", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that has ended: %v", err)
	}

	// A second deletion may only shorten the time.
	if err := pods.Delete(t.Context(), "given", *seconds(90)); err != nil {
		t.Error(err)
	}
	if grace := must(pods.Get(t.Context(), "given", metav1.GetOptions{}))(t).DeletionGracePeriodSeconds; *grace != 60 {
		t.Errorf("after a longer one it is %d", *grace)
	}
	if err := pods.Delete(t.Context(), "given", *seconds(0)); err != nil {
		t.Error(err)
	}
	if _, err := pods.Get(t.Context(), "given", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that its kubelet has ended: %v", err)
	}
	must(pods.Patch(t.Context(), "default", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{}))(t)
	if err := c.typed.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "the namespace is gone", func() (bool, string) {
		got, err := c.typed.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(got.Status, err)
	})
}

// Requests for containers, which never run, get an API error that says so.
func TestContainersOfPods(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	must(c.typed.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		metav1.CreateOptions{}))(t)
	for name, node := range map[string]string{"waiting": "", "assigned": ns, "lost": "missing"} {
		pod := testPod(name)
		pod.Spec.NodeName = node
		must(c.typed.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	}
	client := must(rest.HTTPClientFor(shared.RESTConfig()))(t)
	defer client.CloseIdleConnections()
	container := testPod("").Spec.Containers[0].Name
	for _, q := range []struct {
		method, path string
		status       int
		text         string
	}{
		{"GET", "waiting/log", 204, ""},
		{"GET", "waiting/log?container=none", 400, "container none is not valid for pod waiting"},
		{"GET", "assigned/log?follow=true&container=" + container, 400, "this server has no kubelet on node " + ns},
		{"GET", "lost/log", 404, `nodes \"missing\" not found`},
		{"GET", "missing/log", 404, `pods \"missing\" not found`},
		{"POST", "waiting/exec?command=ls&stdout=true", 400, "pod waiting does not have a host assigned"},
		{"POST", "assigned/exec?command=ls&stdout=true", 400, "this server has no kubelet on node " + ns},
		{"GET", "assigned/exec?container=none&command=ls", 400, "container none is not valid for pod assigned"},
		{"POST", "assigned/attach?container=" + container, 400, "this server has no kubelet on node " + ns},
		{"POST", "assigned/portforward?ports=80", 400, "this server has no kubelet on node " + ns},
		{"GET", "missing/portforward", 404, `pods \"missing\" not found`},
	} {
		request := must(http.NewRequestWithContext(t.Context(), q.method, shared.RESTConfig().Host+"/api/v1/namespaces/"+ns+
			"/pods/"+q.path, nil))(t)
		answer := must(client.Do(request))(t)
		body := must(io.ReadAll(answer.Body))(t)
		answer.Body.Close()
		if answer.StatusCode != q.status || !strings.Contains(string(body), q.text) {
			t.Errorf("%s %s: %d %s, want %d %s", q.method, q.path, answer.StatusCode, body, q.status, q.text)
		}
	}
}
