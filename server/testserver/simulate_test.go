package testserver_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/polymorphichelpers"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
	"github.com/keepwatch/keepwatch/server/testserver"
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

func selectorOf(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: appLabels(name)}
}

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
	must(m.AppsV1().Deployments("default").Patch(m.Context(), name, types.MergePatchType, encoded,
		metav1.PatchOptions{}))(m)
}

// rolledOut waits until kubectl would say that a rollout has ended.
func (m *moving) rolledOut(name string) *appsv1.Deployment {
	m.Helper()
	var d *appsv1.Deployment
	await.True(m, "the rollout of "+name, func() bool {
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
	await.True(m, "nothing is written", func() bool {
		before := m.versions()
		m.patchDeployment("marker",
			map[string]any{"metadata": map[string]any{"labels": map[string]any{"at": fmt.Sprint(m.srv.Revision())}}})
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
	for _, s := range must(m.AppsV1().StatefulSets("").List(m.Context(), metav1.ListOptions{}))(m).Items {
		all += s.Name + s.ResourceVersion + " "
	}
	for _, s := range must(m.AppsV1().DaemonSets("").List(m.Context(), metav1.ListOptions{}))(m).Items {
		all += s.Name + s.ResourceVersion + " "
	}
	for _, r := range must(m.AppsV1().ControllerRevisions("").List(m.Context(), metav1.ListOptions{}))(m).Items {
		all += r.Name + r.ResourceVersion + " "
	}
	return all
}

// The pods of a Deployment run, a new template replaces them, and fewer replicas are left when it is scaled down.
func TestSimulatedDeployment(t *testing.T) {
	m := newMoving(t)
	m.deploy(deployment("web", 5))
	d := m.rolledOut("web")
	if s := d.Status; s.Replicas != 5 || s.UpdatedReplicas != 5 || s.ReadyReplicas != 5 || s.AvailableReplicas != 5 ||
		s.UnavailableReplicas != 0 {
		t.Errorf("the status is %+v", s)
	}
	if d.Annotations["deployment.kubernetes.io/revision"] != "1" {
		t.Errorf("the annotations are %v", d.Annotations)
	}
	first := map[types.UID]bool{}
	ips := map[string]bool{}
	for _, p := range m.pods("web") {
		first[p.UID], ips[p.Status.PodIP] = true, true
		if !ready(p) || p.Spec.NodeName != "node-1" || p.Labels["pod-template-hash"] == "" ||
			p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("a pod is %+v", p)
		}
	}
	if len(first) != 5 || len(ips) != 5 || ips[""] {
		t.Errorf("%d pods with the addresses %v", len(first), ips)
	}

	m.patchDeployment("web",
		map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{"new": "yes"}}}}})
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
	await.True(m, "two pods", func() bool { return len(m.pods("web")) == 2 })
	m.quiet()
}

// A deleted pod is replaced; an orphan is adopted, and a pod that is no longer selected is released; the Deployment's
// pods go with it.
func TestSimulatedOwnership(t *testing.T) {
	m := newMoving(t)
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: appLabels("web")}, Spec: template("").Spec}
	must(m.CoreV1().Pods("default").Create(t.Context(), orphan, metav1.CreateOptions{}))(t)
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32),
		Selector: selectorOf("web"), Template: template("web")}}
	*set.Spec.Replicas = 2
	must(m.AppsV1().ReplicaSets("default").Create(t.Context(), set, metav1.CreateOptions{}))(t)
	all := func() bool {
		pods := m.pods("web")
		for _, p := range pods {
			if owner := metav1.GetControllerOf(&p); owner == nil || owner.Name != "web" || !ready(p) ||
				p.DeletionTimestamp != nil {
				return false
			}
		}
		return len(pods) == 2
	}
	await.True(t, "two pods of the set", all)
	if p, err := m.CoreV1().Pods("default").Get(t.Context(), "orphan", metav1.GetOptions{}); err != nil ||
		metav1.GetControllerOf(p) == nil {
		t.Errorf("the orphan is %v, %v", p, err)
	}
	if err := m.CoreV1().Pods("default").Delete(t.Context(), "orphan", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the deleted pod is replaced", all)
	released := m.pods("web")[0].Name
	must(m.CoreV1().Pods("default").Patch(t.Context(), released, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{}))(t)
	await.True(t, "the released pod is replaced", all)
	await.True(t, "the pod is released", func() bool {
		return metav1.GetControllerOf(must(m.CoreV1().Pods("default").Get(t.Context(), released,
			metav1.GetOptions{}))(t)) == nil
	})
	if err := m.AppsV1().ReplicaSets("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the pods go with their owner", func() bool { return len(m.pods("web")) == 0 })
	m.deploy(deployment("gone", 3))
	if err := m.AppsV1().Deployments("default").Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "no pod of a deleted Deployment is left", func() bool {
		sets := must(m.AppsV1().ReplicaSets("default").List(t.Context(), metav1.ListOptions{}))(t).Items
		return len(m.pods("gone"))+len(sets) == 0
	})
	if _, err := m.AppsV1().ReplicaSets("default").Get(t.Context(), "web",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func toUnstructured(o any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	return &unstructured.Unstructured{Object: content}, err
}

// addNode creates a node.
func (m *moving) addNode(name string) {
	m.Helper()
	must(m.CoreV1().Nodes().Create(m.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"zone": name}}}, metav1.CreateOptions{}))(m)
}

// placed creates a pod of a zone, and reports whether the simulation finds a node for it.
func (m *moving) placed(name, zone string) (placed bool) {
	m.Helper()
	pods := m.CoreV1().Pods("default")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template("").Spec}
	pod.Spec.NodeSelector = map[string]string{"zone": zone}
	must(pods.Create(m.Context(), pod, metav1.CreateOptions{}))(m)
	await.State(m, "the simulation has looked for a node", func() (bool, string) {
		pod = must(pods.Get(m.Context(), name, metav1.GetOptions{}))(m)
		conditions := pod.Status.Conditions
		placed = pod.Spec.NodeName != ""
		return placed || len(conditions) == 1 && conditions[0].Reason == corev1.PodReasonUnschedulable, fmt.Sprint(conditions)
	})
	return placed
}

// Each node is ready and has a lease, which is renewed. Pods go where their selectors say, and those of a node that is
// deleted go after a while.
func TestSimulatedNodes(t *testing.T) {
	m := newMoving(t)
	if m.placed("picky", "second") {
		t.Error("the pod has a node of another zone")
	}
	get := func() *corev1.Pod {
		return must(m.CoreV1().Pods("default").Get(t.Context(), "picky", metav1.GetOptions{}))(t)
	}
	m.addNode("second")
	await.True(t, "the pod runs on the second node", func() bool {
		return get().Spec.NodeName == "second" &&
			ready(*get())
	})
	node := must(m.CoreV1().Nodes().Get(t.Context(), "second", metav1.GetOptions{}))(t)
	if node.Status.Capacity.Cpu().IsZero() || node.Status.Allocatable.Pods().IsZero() {
		t.Errorf("the node's status is %+v", node.Status)
	}
	lease := func() time.Time {
		lease, err := m.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "second", metav1.GetOptions{})
		if err != nil {
			return time.Time{}
		}
		return lease.Spec.RenewTime.Time
	}
	await.True(t, "the lease exists", func() bool { return !lease().IsZero() })
	before := lease()
	m.srv.Advance(time.Hour)
	await.True(t, "the lease is renewed", func() bool { return lease().Sub(before) >= time.Hour })
	if err := m.CoreV1().Nodes().Delete(t.Context(), "second", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the pod of the deleted node is deleted", func() bool {
		_, err := m.CoreV1().Pods("default").Get(t.Context(), "picky", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// A deleted pod goes when its node has ended it: at once on a node that is ready, and not on another. Finalizers keep
// it.
func TestSimulatedTermination(t *testing.T) {
	m := newMoving(t)
	m.addNode("second")
	pods := m.CoreV1().Pods("default")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{"example.com/kept"}},
		Spec: template("").Spec}
	pod.Spec.NodeSelector = map[string]string{"zone": "second"}
	must(pods.Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	get := func() *corev1.Pod { return must(pods.Get(t.Context(), "p", metav1.GetOptions{}))(t) }
	await.True(t, "the pod runs", func() bool { return ready(*get()) })
	setReady := func(value corev1.ConditionStatus) {
		body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, value)
		must(m.CoreV1().Nodes().Patch(t.Context(), "second", types.StrategicMergePatchType, []byte(body),
			metav1.PatchOptions{}, "status"))(t)
	}
	setReady(corev1.ConditionUnknown)
	late := 0
	await.True(t, "the simulation knows it", func() bool {
		late++
		return !m.placed(fmt.Sprint("late-", late), "second")
	})
	if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if grace := get().DeletionGracePeriodSeconds; grace == nil || *grace != corev1.DefaultTerminationGracePeriodSeconds {
		t.Errorf("the grace period is %v", grace)
	}
	m.quiet()
	if grace := get().DeletionGracePeriodSeconds; *grace == 0 {
		t.Error("a node that is not ready has ended the pod")
	}
	setReady(corev1.ConditionTrue)
	await.True(t, "the node has ended the pod", func() bool { return *get().DeletionGracePeriodSeconds == 0 })
	must(pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}))(t)
	if _, err := pods.Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without finalizers: %v", err)
	}
}

// A pod is ready after the delay of its probe, and a rollout waits for minReadySeconds.
func TestSimulatedDelays(t *testing.T) {
	m := newMoving(t)
	d := deployment("slow", 2)
	d.Spec.MinReadySeconds, d.Spec.ProgressDeadlineSeconds = 3600, new(int32(36000))
	d.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{InitialDelaySeconds: 7200}
	m.deploy(d)
	running := func(wantReady bool) func() bool {
		return func() bool {
			pods := m.pods("slow")
			for _, p := range pods {
				if p.Status.Phase != corev1.PodRunning || ready(p) != wantReady {
					return false
				}
			}
			return len(pods) == 2
		}
	}
	await.True(t, "the pods run", running(false))
	m.srv.Advance(2 * time.Hour)
	await.True(t, "the pods are ready", running(true))
	await.True(t, "the pods are counted as ready, and not as available", func() bool {
		s := must(m.AppsV1().Deployments("default").Get(t.Context(), "slow", metav1.GetOptions{}))(t).Status
		return s.ReadyReplicas == 2 && s.AvailableReplicas == 0
	})
	m.srv.Advance(time.Hour)
	m.rolledOut("slow")
}

// A rollout whose pods never get ready exceeds its deadline, and pods of the old template stay.
func TestSimulatedDeadline(t *testing.T) {
	m := newMoving(t)
	m.deploy(deployment("web", 4))
	m.rolledOut("web")
	m.patchDeployment("web",
		map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "c", "image": "i:2", "readinessProbe": map[string]any{"initialDelaySeconds": 1 << 20}}}}}}})
	reason := func() string {
		for _, c := range must(m.AppsV1().Deployments("default").Get(t.Context(), "web",
			metav1.GetOptions{}))(t).Status.Conditions {
			if c.Type == appsv1.DeploymentProgressing {
				return string(c.Status) + " " + c.Reason
			}
		}
		return ""
	}
	await.True(t, "the new pods run and one old pod has gone", func() bool {
		s := must(m.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{}))(t).Status
		return s.Replicas == 5 && s.UpdatedReplicas == 2 && s.AvailableReplicas == 3
	})
	await.True(t, "the deadline is exceeded", func() bool {
		m.srv.Advance(10 * time.Minute)
		return reason() == "False ProgressDeadlineExceeded"
	})
	m.patchDeployment("web",
		map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "c", "image": "i:1"}}}}}})
	if d := m.rolledOut("web"); d.Annotations["deployment.kubernetes.io/revision"] != "3" ||
		reason() != "True NewReplicaSetAvailable" {
		t.Errorf("after the rollback: %v, %s", d.Annotations, reason())
	}
}

func (m *moving) statefulSet() *appsv1.StatefulSet {
	m.Helper()
	return must(m.AppsV1().StatefulSets("default").Get(m.Context(), "db", metav1.GetOptions{}))(m)
}

// The pods of a StatefulSet start in their order, each with its claim; an update replaces them in the reverse order,
// down to the partition; the last goes first.
func TestSimulatedStatefulSet(t *testing.T) {
	m := newMoving(t)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32), Selector: selectorOf("db"), Template: template("db"), ServiceName: "db",
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}}},
	}}
	*set.Spec.Replicas = 3
	set.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{InitialDelaySeconds: 3600}
	must(m.AppsV1().StatefulSets("default").Create(t.Context(), set, metav1.CreateOptions{}))(t)
	names := func(pods []corev1.Pod) (all string) {
		for _, p := range pods {
			all += p.Name + " "
		}
		return all
	}
	await.True(t, "the first pod runs", func() bool {
		pods := m.pods("db")
		return len(pods) == 1 && pods[0].Status.Phase == corev1.PodRunning && !ready(pods[0])
	})
	for _, want := range []string{"db-0 db-1 ", "db-0 db-1 db-2 "} {
		m.srv.Advance(time.Hour)
		await.True(t, want, func() bool {
			pods := m.pods("db")
			return names(pods) == want && pods[len(pods)-1].Status.Phase == corev1.PodRunning
		})
	}
	m.srv.Advance(time.Hour)
	rolledOut := func() bool {
		_, done, err := (&polymorphichelpers.StatefulSetStatusViewer{}).Status(must(toUnstructured(m.statefulSet()))(t), 0)
		return done && err == nil && m.statefulSet().Status.ReadyReplicas == *m.statefulSet().Spec.Replicas
	}
	await.True(t, "all are ready", rolledOut)
	claim := must(m.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data-db-2", metav1.GetOptions{}))(t)
	if claim.Status.Phase != corev1.ClaimBound {
		t.Errorf("the claim is %s", claim.Status.Phase)
	}
	first := m.pods("db")[0].UID
	patch := func(patch string) {
		t.Helper()
		must(m.AppsV1().StatefulSets("default").Patch(t.Context(), "db", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}))(t)
	}
	patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}},"template":{"spec":{"containers":[{"name":"c","image":"i:2"}]}}}}`)
	images := func() (all string) {
		for _, p := range m.pods("db") {
			all += p.Spec.Containers[0].Image + " "
		}
		return all
	}
	await.True(t, "two are updated", func() bool { return images() == "i:1 i:2 i:2 " && rolledOut() })
	if m.pods("db")[0].UID != first {
		t.Error("the pod below the partition was replaced")
	}
	if s := m.statefulSet().Status; s.CurrentRevision == s.UpdateRevision || s.UpdatedReplicas != 2 ||
		s.CurrentReplicas != 1 {
		t.Errorf("the status is %+v", s)
	}
	patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	await.True(t, "all are updated", func() bool {
		s := m.statefulSet().Status
		return rolledOut() &&
			s.CurrentRevision == s.UpdateRevision
	})
	patch(`{"spec":{"replicas":1}}`)
	await.True(t, "the first is left", func() bool { return names(m.pods("db")) == "db-0 " })
	if claims := must(m.CoreV1().PersistentVolumeClaims("default").List(t.Context(),
		metav1.ListOptions{}))(t).Items; len(claims) != 3 {
		t.Errorf("%d claims", len(claims))
	}
	m.quiet()
}

// A DaemonSet has a pod on each node, also on one that is added, and replaces them one by one.
func TestSimulatedDaemonSet(t *testing.T) {
	m := newMoving(t)
	m.addNode("second")
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{Selector: selectorOf("agent"), Template: template("agent")}}
	must(m.AppsV1().DaemonSets("default").Create(t.Context(), set, metav1.CreateOptions{}))(t)
	on := func(image string, want ...string) func() bool {
		return func() bool {
			var nodes []string
			for _, p := range m.pods("agent") {
				if ready(p) && p.Spec.Containers[0].Image == image {
					nodes = append(nodes, p.Spec.NodeName)
				}
			}
			slices.Sort(nodes)
			set := must(m.AppsV1().DaemonSets("default").Get(t.Context(), "agent", metav1.GetOptions{}))(t)
			_, done, err := (&polymorphichelpers.DaemonSetStatusViewer{}).Status(must(toUnstructured(set))(t), 0)
			return slices.Equal(nodes, want) && done && err == nil && int(set.Status.NumberAvailable) == len(want)
		}
	}
	await.True(t, "a pod on each node", on("i:1", "node-1", "second"))
	m.addNode("third")
	await.True(t, "a pod on the third node", on("i:1", "node-1", "second", "third"))
	must(m.AppsV1().DaemonSets("default").Patch(t.Context(), "agent", types.MergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i:2"}]}}}}`), metav1.PatchOptions{}))(t)
	await.True(t, "all are replaced", on("i:2", "node-1", "second", "third"))
	m.srv.Advance(time.Minute) // the time after which a pod is deleted whose node is gone
	if err := m.CoreV1().Nodes().Delete(t.Context(), "second", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the pod of the deleted node is gone", on("i:2", "node-1", "third"))
	m.quiet()
}

func (m *moving) job(name string, change func(*batchv1.Job)) func() *batchv1.Job {
	m.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: template(name)}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	change(job)
	must(m.BatchV1().Jobs("default").Create(m.Context(), job, metav1.CreateOptions{}))(m)
	return func() *batchv1.Job {
		return must(m.BatchV1().Jobs("default").Get(m.Context(), name, metav1.GetOptions{}))(m)
	}
}

func jobHas(job *batchv1.Job, kind batchv1.JobConditionType, reason string) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue && (reason == "" || c.Reason == reason)
	})
}

// Jobs complete when their pods have run, as many at a time as allowed; they fail at their limit of failures and at
// their deadline.
func TestSimulatedJobs(t *testing.T) {
	m := newMoving(t)
	number := func(n int32) *int32 { return &n }
	quick := m.job("quick", func(*batchv1.Job) {})
	await.True(t, "a Job completes", func() bool {
		return jobHas(quick(), batchv1.JobComplete, "") &&
			quick().Status.Succeeded == 1
	})

	long := m.job("long", func(j *batchv1.Job) {
		j.Spec.Completions, j.Spec.Parallelism = number(3), number(2)
		j.Spec.CompletionMode = new(batchv1.CompletionMode)
		*j.Spec.CompletionMode = batchv1.IndexedCompletion
		j.Spec.TTLSecondsAfterFinished = number(600)
		j.Spec.Template.Annotations = map[string]string{controlplane.RunForAnnotation: "1h"}
	})
	await.True(t, "two pods run", func() bool {
		s := long().Status
		return s.Active == 2 && s.Ready != nil &&
			*s.Ready == 2
	})
	m.srv.Advance(time.Hour)
	await.True(t, "the third pod runs", func() bool {
		s := long().Status
		return s.Succeeded == 2 && s.Active == 1 &&
			*s.Ready == 1
	})
	m.srv.Advance(time.Hour)
	await.True(t, "the Job completes", func() bool { return jobHas(long(), batchv1.JobComplete, "") })
	if s := long().Status; s.CompletedIndexes != "0-2" || s.Succeeded != 3 || s.Active != 0 || s.CompletionTime == nil ||
		s.StartTime == nil {
		t.Errorf("the status is %+v", s)
	}
	m.srv.Advance(10 * time.Minute)
	await.True(t, "the Job is deleted after its time, with its pods", func() bool {
		_, err := m.BatchV1().Jobs("default").Get(t.Context(), "long", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && len(m.pods("long")) == 0
	})

	failing := m.job("failing", func(j *batchv1.Job) {
		j.Spec.BackoffLimit = number(1)
		j.Spec.Template.Annotations = map[string]string{controlplane.ExitCodeAnnotation: "3"}
	})
	await.True(t, "a pod fails", func() bool { return failing().Status.Failed >= 1 })
	m.srv.Advance(time.Minute)
	await.True(t, "the Job fails", func() bool {
		return jobHas(failing(), batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded) && failing().Status.Failed == 2
	})
	if code := m.pods("failing")[0].Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 3 {
		t.Errorf("the exit code is %d", code)
	}

	byIndex := m.job("by-index", func(j *batchv1.Job) {
		j.Spec.Completions, j.Spec.Parallelism, j.Spec.BackoffLimitPerIndex = number(3), number(3), number(1)
		j.Spec.CompletionMode = new(batchv1.CompletionMode)
		*j.Spec.CompletionMode = batchv1.IndexedCompletion
		j.Spec.Template.Annotations = map[string]string{controlplane.ExitCodeAnnotation: "3"}
	})
	await.True(t, "each index fails", func() bool { return byIndex().Status.Failed == 3 })
	m.srv.Advance(time.Minute)
	await.True(t, "each index fails twice, and the Job", func() bool {
		return jobHas(byIndex(), batchv1.JobFailed, batchv1.JobReasonFailedIndexes) && byIndex().Status.Failed == 6
	})
	if s := byIndex().Status; s.FailedIndexes == nil || *s.FailedIndexes != "0-2" || s.Active != 0 {
		t.Errorf("the status is %+v", s)
	}

	late := m.job("late", func(j *batchv1.Job) {
		j.Spec.ActiveDeadlineSeconds = new(int64)
		*j.Spec.ActiveDeadlineSeconds = 3600
		j.Spec.Template.Annotations = map[string]string{controlplane.RunForAnnotation: "2h"}
	})
	await.True(t, "the pod runs", func() bool { return late().Status.Active == 1 })
	m.srv.Advance(time.Hour)
	await.True(t, "the Job exceeds its deadline", func() bool {
		return jobHas(late(), batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded) && len(m.pods("late")) == 0
	})
}

// refused creates a Deployment that is invalid.
func (m *moving) refused(d *appsv1.Deployment) {
	m.Helper()
	if _, err := m.AppsV1().Deployments("default").Create(m.Context(), d,
		metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		m.Errorf("the Deployment %s: %v", d.Name, err)
	}
}

// A namespace with workloads can be deleted, invalid workloads are refused, and large ones delay no others.
func TestSimulatedHostility(t *testing.T) {
	m := newMoving(t)
	must(m.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "busy"}},
		metav1.CreateOptions{}))(t)
	large := deployment("large", 10_000)
	must(m.AppsV1().Deployments("busy").Create(t.Context(), large, metav1.CreateOptions{}))(t)
	await.True(t, "many pods", func() bool {
		return len(must(m.CoreV1().Pods("busy").List(t.Context(), metav1.ListOptions{}))(t).Items) > 100
	})
	for i, selector := range []*metav1.LabelSelector{nil, {}, {MatchLabels: map[string]string{"app": "another"}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Nonsense"}}}} {
		d := deployment(fmt.Sprintf("invalid-%d", i), 3)
		d.Spec.Selector = selector
		m.refused(d)
	}
	negative := deployment("negative", -5)
	negative.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.IntOrString),
		MaxUnavailable: new(intstr.IntOrString)}
	*negative.Spec.Strategy.RollingUpdate.MaxSurge = intstr.FromString("nonsense")
	*negative.Spec.Strategy.RollingUpdate.MaxUnavailable = intstr.FromInt32(-3)
	m.refused(negative)
	m.deploy(deployment("web", 3)) // while the large one grows
	m.rolledOut("web")
	if err := m.CoreV1().Namespaces().Delete(t.Context(), "busy", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the namespace is deleted", func() bool {
		_, err := m.CoreV1().Namespaces().Get(t.Context(), "busy", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	m.quiet()
}

// A webhook that refuses pods is not asked in a loop, and the set reports the refusal until it ends.
func TestSimulatedRefusal(t *testing.T) {
	m := newMoving(t)
	var asked atomic.Int64
	var open atomic.Bool
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: open.Load()}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(hook.Close)
	url, none, fail := hook.URL, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	must(m.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "refuse.example.com", SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url,
					CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})},
				ObjectSelector: &metav1.LabelSelector{MatchLabels: appLabels("web")},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"pods"}},
				}},
			}},
		}, metav1.CreateOptions{}))(t)
	refused := func() bool {
		for _, c := range must(m.AppsV1().Deployments("default").Get(t.Context(), "web",
			metav1.GetOptions{}))(t).Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}
	await.True(t, "the webhook is active", func() bool {
		_, err := m.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "try",
			Labels: appLabels("web")}, Spec: template("").Spec},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
	asked.Store(0)
	begun := time.Now()
	m.deploy(deployment("web", 3))
	await.True(t, "the refusal is reported", refused)
	await.True(t, "it is tried again", func() bool { return asked.Load() >= 6 })
	// The delays are 20 ms and double; the changes of the status of the set and the Deployment cost some attempts more.
	if most := 10 + int64(time.Since(begun)/(300*time.Millisecond)); asked.Load() > most {
		t.Errorf("%d attempts in %v", asked.Load(), time.Since(begun))
	}
	open.Store(true)
	m.rolledOut("web")
	await.True(t, "the refusal is forgotten", func() bool { return !refused() })
}

// A quota bounds the pods of a Deployment, and its status follows them.
func TestSimulatedQuota(t *testing.T) {
	m := newMoving(t)
	quotas := m.CoreV1().ResourceQuotas("default")
	two := resource.MustParse("2")
	must(quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": two}},
	}, metav1.CreateOptions{}))(t)
	used := func(hard, used int64) func() bool {
		return func() bool {
			status := must(quotas.Get(t.Context(), "pods", metav1.GetOptions{}))(t).Status
			return status.Hard.Pods().Value() == hard && status.Used.Pods().Value() == used
		}
	}
	await.True(t, "the quota has its status", used(2, 0))
	m.deploy(deployment("web", 3))
	await.True(t, "two pods are ready", func() bool {
		pods := m.pods("web")
		return len(pods) == 2 && ready(pods[0]) && ready(pods[1]) && used(2, 2)()
	})
	must(quotas.Patch(t.Context(), "pods", types.MergePatchType, []byte(`{"spec":{"hard":{"pods":"5"}}}`),
		metav1.PatchOptions{}))(t)
	m.rolledOut("web")
	await.True(t, "three pods are counted", used(5, 3))
	m.patchDeployment("web", map[string]any{"spec": map[string]any{"replicas": 1}})
	await.True(t, "one pod is counted", used(5, 1))
}

// A restarted server and a fork continue.
func TestSimulationContinues(t *testing.T) {
	m := newMoving(t)
	m.deploy(deployment("web", 30))
	fork := m.srv.Fork(t)
	m.srv.Restart()
	for _, srv := range []*testserver.Server{m.srv, fork} {
		c := &moving{t, srv, connect(t, srv.Config())}
		c.rolledOut("web")
		await.True(t, "as many pods as wanted", func() bool { return len(c.pods("web")) == 30 })
		ips := map[string]bool{}
		for _, p := range c.pods("web") {
			ips[p.Status.PodIP] = true
		}
		if len(ips) != 30 {
			t.Errorf("%d addresses", len(ips))
		}
		c.quiet()
	}
}
