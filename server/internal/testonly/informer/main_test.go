package informer_test

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// kubernetesAPI runs a Kubernetes API until the end of the test.
func kubernetesAPI(t *testing.T) *rest.Config {
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
