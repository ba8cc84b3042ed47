package peer

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// Proxy starts keepwatch proxy in front of an API server for the duration of the test. Its clients act as
// the server's administrator.
func Proxy(tb testing.TB, behind *Server, flags ...string) *Server {
	tb.Helper()
	s, err := startProxy(tb.Context(), tb.TempDir(), behind, flags)
	own(tb, s.Service, err)
	return s
}

func startProxy(ctx context.Context, dir string, behind *Server, flags []string) (*Server, error) {
	s := &Server{kubeconfig: filepath.Join(dir, "kubeconfig"), endpoint: behind.endpoint, etcd: behind.etcd}
	path, err := keepwatch()
	if err != nil {
		return s, err
	}
	s.Service = &Service{
		name: "keepwatch proxy", path: path, log: filepath.Join(dir, "proxy.log"),
		grace: 10 * time.Second, probe: s.kubeconfigReady,
	}
	return s, s.launch(ctx, func(port int) {
		s.args = append([]string{
			"proxy",
			"--kubeconfig", behind.kubeconfig,
			"--listen", fmt.Sprintf("127.0.0.1:%d", port),
			"--kubeconfig-out", s.kubeconfig,
		}, flags...)
	})
}
