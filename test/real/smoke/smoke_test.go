// Package smoke tests that the real programs run as the other tests need them.
package smoke

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

func clientset(t *testing.T, s *peer.Server) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func createPod(t *testing.T, s *peer.Server, name string) *corev1.Pod {
	t.Helper()
	pod, err := clientset(t, s).CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/image"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestVersion(t *testing.T) {
	s := peer.SharedKubernetes(t)
	want, err := peer.KubeAPIServer.Version()
	if err != nil {
		t.Fatal(err)
	}
	got, err := clientset(t, s).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if got.GitVersion != want || got.Major != "1" || got.Minor == "" {
		t.Errorf("server says it is %#v, want %s", got, want)
	}
}

func TestKubectlShowsPod(t *testing.T) {
	s := peer.SharedKubernetes(t)
	createPod(t, s, "shown")
	if out := s.Kubectl(t, "get", "pods"); !strings.HasPrefix(out, "NAME ") || !strings.Contains(out, "\nshown ") {
		t.Errorf("kubectl get pods:\n%s", out)
	}
}

func TestMetricsCountLists(t *testing.T) {
	s := peer.SharedKubernetes(t)
	lists := func() int {
		t.Helper()
		metrics, err := s.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return metrics.Requests("LIST", "endpoints")
	}
	before := lists()
	for range 3 {
		// no other client lists these
		if _, err := clientset(t, s).CoreV1().Endpoints("").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := lists() - before; got != 3 {
		t.Errorf("the metrics count %d lists, want 3", got)
	}
}

// TestCompactionExpiresWatch has the API server read from etcd, not from its
// watch cache, which has a history of its own.
func TestCompactionExpiresWatch(t *testing.T) {
	s := peer.Kubernetes(t, "--watch-cache=false")
	old := createPod(t, s, "before").ResourceVersion
	createPod(t, s, "lost") // its event is compacted
	createPod(t, s, "last") // compaction keeps the newest revision
	if _, err := s.Etcd().Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	w, err := clientset(t, s).CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: old})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	event, ok := <-w.ResultChan()
	if !ok || event.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		t.Errorf("watch from a compacted revision: %v %v, want 410 Expired", event.Type, event.Object)
	}
}

func TestRestartKeepsData(t *testing.T) {
	s := peer.Kubernetes(t)
	want := createPod(t, s, "kept")
	host := s.Config().Host

	s.Kill()
	if err := s.Etcd().Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Etcd().Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	got, err := clientset(t, s).CoreV1().Pods("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != want.UID || got.ResourceVersion != want.ResourceVersion || s.Config().Host != host {
		t.Errorf("after a restart: %s at %s on %s, want %s at %s on %s",
			got.UID, got.ResourceVersion, s.Config().Host, want.UID, want.ResourceVersion, host)
	}
	// No request is open, so the server ends in time.
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

func TestMemory(t *testing.T) {
	p := peer.SharedKubernetes(t).Process()
	first, err := p.Memory()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ResetPeak(); err != nil {
		t.Fatal(err)
	}
	reset, err := p.Memory()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []peer.Memory{first, reset} {
		if m.Resident < 50<<20 || m.Peak < m.Resident {
			t.Errorf("kube-apiserver holds %d bytes, and at most %d", m.Resident, m.Peak)
		}
	}
}
