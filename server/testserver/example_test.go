package testserver_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/server/testserver"
)

// A test gets a server of its own in one line.
func ExampleNew() {
	_ = func(t *testing.T) {
		srv := testserver.New(t)
		client, err := kubernetes.NewForConfig(srv.Config())
		if err != nil {
			t.Fatal(err)
		}
		namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(namespaces.Items) == 0 {
			t.Fatal(namespaces, err)
		}
	}
}

// The pods of a Deployment run, and a Job ends when its time is over.
func ExampleSimulate() {
	_ = func(t *testing.T) {
		srv := testserver.New(t, testserver.Simulate())
		// Create a Deployment: its rollout ends. Create a Job whose pods have the annotation simulation.keepwatch.io/run-for:
		// 1h.
		srv.Advance(time.Hour) // the Job completes
	}
}

// An expensive setup is made once. Each test has a fork of it.
func ExampleServer_Fork() {
	_ = func(t *testing.T) {
		base := testserver.New(t, testserver.CRDs("config/crd"))
		t.Run("one", func(t *testing.T) {
			t.Parallel()
			srv := base.Fork(t)
			srv.Conflict(1) // the controller's first update fails
			_ = srv
		})
	}
}
