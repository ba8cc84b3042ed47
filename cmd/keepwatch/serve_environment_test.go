package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// A server whose address is not that of loopback reaches itself although the environment names a proxy.
func TestServeBesideAProxy(t *testing.T) {
	parallel(t)
	own := ""
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			own = network.IP.String()
		}
	}
	if own == "" {
		t.Skip("this machine has no address but loopback")
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	p := newProcess(t, []string{self(t), "serve", "--listen", net.JoinHostPort(own, "0"), "--kubeconfig-out", file})
	p.Env = append(p.Env, "HTTPS_PROXY=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1", "NO_PROXY=", "no_proxy=")
	p.start(t)
	if line := p.waitReady(t); !strings.Contains(line, "https://"+net.JoinHostPort(own, "")) || strings.Count(line, "\n") != 1 {
		t.Errorf("stderr is %q", line)
	}
}
