package served

import (
	"math"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/test/peer"
)

// Each kind of write has its figures, and the server has no pods afterwards.
func TestWrites(t *testing.T) {
	api := peer.SharedServe(t)
	server, err := NewServer(Keepwatch, api, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := NewReport(t.Logf, Upstream)
	const writers = 3
	if err := server.measureWrites(t.Context(), r, writers, 10); err != nil {
		t.Fatal(err)
	}
	for _, kind := range writeKinds {
		for _, m := range []string{perSecond, writeP99} {
			if got := r.value(Keepwatch, kind.row(writers), m); math.IsNaN(got) || got <= 0 {
				t.Errorf("%s: %s is %v", kind.name, m, got)
			}
		}
	}
	client, err := kubernetes.NewForConfig(api.Config())
	if err != nil {
		t.Fatal(err)
	}
	left, err := client.CoreV1().Pods(writeNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("%d pods are left, %v", len(left.Items), err)
	}
	// A second group of writers finds the namespace.
	if err := server.measureWrites(t.Context(), r, 1, 1); err != nil {
		t.Error(err)
	}
}
