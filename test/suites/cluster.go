package suites

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/test/peer"
)

// clusterNodes is the number of a cluster's nodes, whose kubelets KWOK simulates.
const clusterNodes = 3

// compaction is more often than by default: a spec waits until the history that it has listed is gone.
const compaction = "1m"

// startCluster starts a control plane whose API server answers reads in a mode, with a few nodes.
func startCluster(t *testing.T, mode string) (kubeconfig string, stop func()) {
	t.Helper()
	c := peer.StartCluster(t, "--reads", mode, "--runtime-config", "api/all=true", "--feature-gates",
		"CoordinatedLeaderElection=true",
		"--etcd-compaction-interval", compaction)
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	for i := range clusterNodes {
		name := fmt.Sprintf("node-%d", i)
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name,
				corev1.LabelOSStable: "linux"}},
			Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
		}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return c.Kubeconfig(), func() {
		c.StopComponents()
		c.Kill()
		c.Etcd().Kill()
	}
}
