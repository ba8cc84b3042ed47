// Package smoke tests that keepwatch serve runs as the other tests need it.
package smoke

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

func TestRestartKeepsData(t *testing.T) {
	s := peer.Serve(t)
	client := func() *kubernetes.Clientset {
		t.Helper()
		c, err := kubernetes.NewForConfig(s.Config())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := *s.Config()
	want, err := client().CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]func() error{
		"SIGTERM": s.Stop,
		"SIGKILL": func() error { s.Kill(); return nil },
	}
	for name, end := range ways {
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
		got, err := client().CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.UID != want.UID || got.ResourceVersion != want.ResourceVersion {
			t.Errorf("after %s: %v, want %v", name, got, want)
		}
		if now := s.Config(); now.Host != before.Host || now.BearerToken != before.BearerToken ||
			string(now.CAData) != string(before.CAData) {
			t.Errorf("after %s clients need another configuration", name)
		}
	}
}

func TestCompact(t *testing.T) {
	revision, err := peer.Serve(t).Compact(t.Context())
	if err != nil || revision == 0 {
		t.Errorf("compacted at %d: %v", revision, err)
	}
}
