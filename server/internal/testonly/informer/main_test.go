package informer_test

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/testserver"
)

// kubernetesAPI runs a Kubernetes API until the end of the test.
func kubernetesAPI(t *testing.T) *rest.Config {
	t.Helper()
	return testserver.New(t).Config()
}
