package proxy

import (
	"testing"

	"k8s.io/client-go/rest"
)

// With a service account's identity no kubeconfig is written.
func TestProxyInPod(t *testing.T) {
	if inPod(&rest.Config{BearerToken: "x"}) || inPod(&rest.Config{BearerTokenFile: "/home/x/token"}) {
		t.Error("a user's credentials are taken for a service account's")
	}
	if !inPod(&rest.Config{BearerTokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token"}) {
		t.Error("a service account's credentials are not known")
	}
}
