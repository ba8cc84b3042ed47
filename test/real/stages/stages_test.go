// Package stages has a test of a simulated cluster beside KWOK's controller, whose Stages say what pods on its nodes
// do.
package stages

import (
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
	"github.com/keepwatch/keepwatch/server/controlplane"
	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/test/peer"
)

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// follow runs KWOK's controller with the stages of testdata.
func follow(t *testing.T, srv *testserver.Server) {
	t.Helper()
	path := must(peer.KWOK.Path(t.Context()))(t)
	dir := t.TempDir()
	kubeconfig, log := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "log")
	if err := peer.WriteKubeconfig(kubeconfig, srv.Config()); err != nil {
		t.Fatal(err)
	}
	kwok := must(peer.Start(peer.Command{Path: path, Log: log, Args: []string{
		"--kubeconfig", kubeconfig, "--config", filepath.Join("testdata", "stages.yaml"),
		"--manage-nodes-with-annotation-selector", controlplane.KWOKAnnotation + "=fake",
		"--node-lease-duration-seconds", "40", "--server-address", "",
	}}))(t)
	t.Cleanup(func() {
		if err := kwok.Stop(10 * time.Second); err != nil {
			t.Logf("KWOK: %v", err)
		}
		child.ShowLog(t, "KWOK", log)
	})
}

func workload(name string, labels map[string]string) *appsv1.Deployment {
	replicas := int32(2)
	labels["app"] = name
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector:                  map[string]string{"type": "kwok"},
					Containers:                    []corev1.Container{{Name: "c", Image: "registry.example.com/c"}},
					TerminationGracePeriodSeconds: new(int64(1)),
				},
			},
		},
	}
}

// On the nodes of KWOK, pods do what its Stages say; on other nodes the simulation's. Controllers and the scheduler
// serve both.
func TestStages(t *testing.T) {
	srv := testserver.New(t, testserver.Simulate())
	follow(t, srv)
	c := must(kubernetes.NewForConfig(srv.Config()))(t)
	must(c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "kwok-node", Labels: map[string]string{"type": "kwok"},
		Annotations: map[string]string{controlplane.KWOKAnnotation: "fake"},
	}}, metav1.CreateOptions{}))(t)
	deployments := c.AppsV1().Deployments("default")
	for _, d := range []*appsv1.Deployment{workload("pulled", map[string]string{}),
		workload("local", map[string]string{"image": "local"})} {
		must(deployments.Create(t.Context(), d, metav1.CreateOptions{}))(t)
	}
	own := workload("own", map[string]string{})
	own.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-1"}
	must(deployments.Create(t.Context(), own, metav1.CreateOptions{}))(t)

	ready := func(name string) int32 {
		return must(deployments.Get(t.Context(), name, metav1.GetOptions{}))(t).Status.ReadyReplicas
	}
	pods := func(name string) []corev1.Pod {
		return must(c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name}))(t).Items
	}
	await.True(t, "KWOK's local pods and the simulation's are ready", func() bool {
		return ready("local") == 2 &&
			ready("own") == 2
	})
	await.True(t, "pulls fail", func() bool {
		all := pods("pulled")
		for _, pod := range all {
			if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Waiting == nil ||
				pod.Status.ContainerStatuses[0].State.Waiting.Reason != "ImagePullBackOff" {
				return false
			}
		}
		return len(all) == 2
	})
	for _, pod := range pods("pulled") {
		if pod.Spec.NodeName != "kwok-node" || pod.Status.Phase != corev1.PodPending {
			t.Errorf("%s is %s on %s", pod.Name, pod.Status.Phase, pod.Spec.NodeName)
		}
	}
	if n := ready("pulled"); n != 0 {
		t.Errorf("%d pods without an image are ready", n)
	}
	node := must(c.CoreV1().Nodes().Get(t.Context(), "kwok-node", metav1.GetOptions{}))(t)
	if node.Status.NodeInfo.KubeletVersion != "kwok" || len(node.Spec.Taints) != 0 {
		t.Errorf("the node has the kubelet %q and the taints %v", node.Status.NodeInfo.KubeletVersion, node.Spec.Taints)
	}
	await.True(t, "KWOK has the node's lease", func() bool {
		lease, err := c.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "kwok-node", metav1.GetOptions{})
		return err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "kwok-node"
	})

	must(deployments.Patch(t.Context(), "pulled", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`),
		metav1.PatchOptions{}))(t)
	await.True(t, "KWOK deletes the pods", func() bool { return len(pods("pulled")) == 0 })
}
