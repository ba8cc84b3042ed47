package proxy

import (
	"net"
	"net/netip"
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

// A proxy whose kubeconfig is the one that it writes would be in front of itself.
func TestProxyInFrontOfItself(t *testing.T) {
	for _, test := range []struct {
		server, listener string
		want             bool
	}{
		{"https://127.0.0.1:7443", "127.0.0.1:7443", true},
		{"127.0.0.1:7443", "127.0.0.1:7443", true},
		{"https://localhost:7443/", "127.0.0.1:7443", true},
		{"https://127.0.0.1:7443", "[::]:7443", true},
		{"https://[::1]:7443", "[::1]:7443", true},
		{"https://10.0.0.1:7443", "10.0.0.1:7443", true},
		{"https://10.0.0.1", "10.0.0.1:443", true},
		{"https://127.0.0.1:6443", "127.0.0.1:7443", false},
		{"https://10.0.0.1:7443", "127.0.0.1:7443", false},
		{"https://cluster.example:7443", "[::]:7443", false},
	} {
		at, err := netip.ParseAddrPort(test.listener)
		if err != nil {
			t.Fatal(err)
		}
		if got := isAt(test.server, net.TCPAddrFromAddrPort(at)); got != test.want {
			t.Errorf("%s at %s: %v", test.server, test.listener, got)
		}
	}
}
