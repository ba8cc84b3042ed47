package podtest

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/controlplane"
)

// Kubernetes runs a Kubernetes API until the end of the test.
func Kubernetes(t *testing.T) *rest.Config {
	t.Helper()
	server, err := controlplane.New(controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	select {
	case <-server.Ready():
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	return server.RESTConfig()
}

// ConfigMap returns a config map with some data.
func ConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "v"}}
}
