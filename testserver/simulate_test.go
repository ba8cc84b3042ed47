package testserver_test

import (
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/polymorphichelpers"

	"github.com/keepwatch/keepwatch/testserver"
)

// moving is a test of a simulated cluster.
type moving struct {
	*testing.T
	srv *testserver.Server
	kubernetes.Interface
}

func newMoving(t *testing.T) *moving {
	t.Parallel()
	srv := testserver.New(t, testserver.Simulate())
	return &moving{t, srv, connect(t, srv.Config())}
}

func appLabels(name string) map[string]string { return map[string]string{"app": name} }

func template(name string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: appLabels(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:1"}}},
	}
}

func selectorOf(name string) *metav1.LabelSelector { return &metav1.LabelSelector{MatchLabels: appLabels(name)} }

func deployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selectorOf(name), Template: template(name)},
	}
}

func (m *moving) deploy(d *appsv1.Deployment) *appsv1.Deployment {
	m.Helper()
	return must(m.AppsV1().Deployments("default").Create(m.Context(), d, metav1.CreateOptions{}))(m)
}

// patchDeployment applies a JSON merge patch.
func (m *moving) patchDeployment(name string, patch any) {
	m.Helper()
	encoded := must(json.Marshal(patch))(m)
	must(m.AppsV1().Deployments("default").Patch(m.Context(), name, types.MergePatchType, encoded, metav1.PatchOptions{}))(m)
}

// rolledOut waits until kubectl would say that a rollout has ended.
func (m *moving) rolledOut(name string) *appsv1.Deployment {
	m.Helper()
	var d *appsv1.Deployment
	eventually(m, "the rollout of "+name, func() bool {
		d = must(m.AppsV1().Deployments("default").Get(m.Context(), name, metav1.GetOptions{}))(m)
		content := must(toUnstructured(d))(m)
		_, done, err := (&polymorphichelpers.DeploymentStatusViewer{}).Status(content, 0)
		return done && err == nil
	})
	return d
}

// pods returns the pods of an app.
func (m *moving) pods(app string) []corev1.Pod {
	m.Helper()
	return must(m.CoreV1().Pods("default").List(m.Context(), metav1.ListOptions{LabelSelector: "app=" + app}))(m).Items
}

func ready(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// quiet requires that nothing is written any more, except the leases of nodes. The rest of what happens after a change
// has happened when a later change has had all its effects.
func (m *moving) quiet() {
	m.Helper()
	m.deploy(deployment("marker", 1))
	m.rolledOut("marker")
	eventually(m, "nothing is written", func() bool {
		before := m.versions()
		m.patchDeployment("marker", map[string]any{"metadata": map[string]any{"labels": map[string]any{"at": fmt.Sprint(m.srv.Revision())}}})
		m.rolledOut("marker")
		return before == m.versions()
	})
}

// versions returns the sum of the versions of all workloads and pods that are not the marker's.
func (m *moving) versions() string {
	m.Helper()
	var all string
	for _, p := range must(m.CoreV1().Pods("").List(m.Context(), metav1.ListOptions{}))(m).Items {
		all += p.Name + p.ResourceVersion + " "
	}
	for _, s := range must(m.AppsV1().ReplicaSets("").List(m.Context(), metav1.ListOptions{}))(m).Items {
		all += s.Name + s.ResourceVersion + " "
	}
	for _, d := range must(m.AppsV1().Deployments("").List(m.Context(), metav1.ListOptions{}))(m).Items {
		if d.Name != "marker" {
			all += d.Name + d.ResourceVersion + " "
		}
	}
	return all
}

// The pods of a Deployment run, a new template replaces them, and fewer replicas are left when it is scaled down.
func TestSimulatedDeployment(t *testing.T) {
	m := newMoving(t)
	m.deploy(deployment("web", 5))
	d := m.rolledOut("web")
	if s := d.Status; s.Replicas != 5 || s.UpdatedReplicas != 5 || s.ReadyReplicas != 5 || s.AvailableReplicas != 5 || s.UnavailableReplicas != 0 {
		t.Errorf("the status is %+v", s)
	}
	if d.Annotations["deployment.kubernetes.io/revision"] != "1" {
		t.Errorf("the annotations are %v", d.Annotations)
	}
	first := map[types.UID]bool{}
	ips := map[string]bool{}
	for _, p := range m.pods("web") {
		first[p.UID], ips[p.Status.PodIP] = true, true
		if !ready(p) || p.Spec.NodeName != "node-1" || p.Labels["pod-template-hash"] == "" || p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("a pod is %+v", p)
		}
	}
	if len(first) != 5 || len(ips) != 5 || ips[""] {
		t.Errorf("%d pods with the addresses %v", len(first), ips)
	}

	m.patchDeployment("web", map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"new": "yes"}}}}})
	if d = m.rolledOut("web"); d.Annotations["deployment.kubernetes.io/revision"] != "2" {
		t.Errorf("the annotations are %v", d.Annotations)
	}
	for _, p := range m.pods("web") {
		if first[p.UID] || p.Annotations["new"] != "yes" {
			t.Errorf("the pod %s is old", p.Name)
		}
	}
	if sets := must(m.AppsV1().ReplicaSets("default").List(t.Context(), metav1.ListOptions{}))(t).Items; len(sets) != 2 {
		t.Errorf("%d ReplicaSets", len(sets))
	}

	m.patchDeployment("web", map[string]any{"spec": map[string]any{"replicas": 2}})
	m.rolledOut("web")
	eventually(m, "two pods", func() bool { return len(m.pods("web")) == 2 })
	m.quiet()
}

// A deleted pod is replaced; an orphan is adopted, and a pod that is no longer selected is released; the Deployment's
// pods go with it.
func TestSimulatedOwnership(t *testing.T) {
	m := newMoving(t)
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: appLabels("web")}, Spec: template("").Spec}
	must(m.CoreV1().Pods("default").Create(t.Context(), orphan, metav1.CreateOptions{}))(t)
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32), Selector: selectorOf("web"), Template: template("web")}}
	*set.Spec.Replicas = 2
	must(m.AppsV1().ReplicaSets("default").Create(t.Context(), set, metav1.CreateOptions{}))(t)
	all := func() bool {
		pods := m.pods("web")
		for _, p := range pods {
			if owner := metav1.GetControllerOf(&p); owner == nil || owner.Name != "web" || !ready(p) {
				return false
			}
		}
		return len(pods) == 2
	}
	eventually(t, "two pods of the set", all)
	if p, err := m.CoreV1().Pods("default").Get(t.Context(), "orphan", metav1.GetOptions{}); err != nil || metav1.GetControllerOf(p) == nil {
		t.Errorf("the orphan is %v, %v", p, err)
	}
	if err := m.CoreV1().Pods("default").Delete(t.Context(), "orphan", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deleted pod is replaced", all)
	released := m.pods("web")[0].Name
	must(m.CoreV1().Pods("default").Patch(t.Context(), released, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{}))(t)
	eventually(t, "the released pod is replaced", all)
	eventually(t, "the pod is released", func() bool {
		return metav1.GetControllerOf(must(m.CoreV1().Pods("default").Get(t.Context(), released, metav1.GetOptions{}))(t)) == nil
	})
	if err := m.AppsV1().ReplicaSets("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pods go with their owner", func() bool { return len(m.pods("web")) == 0 })
	m.deploy(deployment("gone", 3))
	if err := m.AppsV1().Deployments("default").Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no pod of a deleted Deployment is left", func() bool {
		sets := must(m.AppsV1().ReplicaSets("default").List(t.Context(), metav1.ListOptions{}))(t).Items
		return len(m.pods("gone"))+len(sets) == 0
	})
	if _, err := m.AppsV1().ReplicaSets("default").Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func toUnstructured(o any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	return &unstructured.Unstructured{Object: content}, err
}
