package peer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/localhost"
)

// Proxy starts keepwatch proxy in front of an API server for the duration of the test. Its clients act as
// the server's administrator.
func Proxy(tb testing.TB, behind *Server, flags ...string) *Server {
	tb.Helper()
	dir := tb.TempDir()
	s := &Server{kubeconfig: filepath.Join(dir, "kubeconfig")}
	err := s.startProxy(tb.Context(), dir, behind, s.kubeconfigReady, append([]string{"--kubeconfig-out", s.kubeconfig},
		flags...))
	own(tb, s.Service, err)
	return s
}

// DeployedProxy is Proxy as in a cluster: its certificate is in files, and its clients have the server's tokens. So
// they remain valid when the proxy is restarted.
func DeployedProxy(tb testing.TB, behind *Server, flags ...string) *Server {
	tb.Helper()
	dir := tb.TempDir()
	certificate, err := localhost.NewCertificate()
	if err != nil {
		tb.Fatal(err)
	}
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, text := range map[string][]byte{cert: certificate.Cert, key: certificate.Key} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	s := &Server{config: &rest.Config{
		BearerToken: behind.config.BearerToken, TLSClientConfig: rest.TLSClientConfig{CAData: certificate.Authority}, QPS: -1,
	}}
	err = s.startProxy(tb.Context(), dir, behind, s.ready, append([]string{
		"--kubeconfig-out", "", "--tls-cert-file", cert, "--tls-private-key-file", key,
	}, flags...))
	own(tb, s.Service, err)
	return s
}

// startProxy starts a proxy, with its log in a folder.
func (s *Server) startProxy(ctx context.Context, dir string, behind *Server, ready func(context.Context) error,
	flags []string) error {
	s.endpoint, s.etcd = behind.endpoint, behind.etcd
	path, err := keepwatch()
	if err != nil {
		return err
	}
	s.Service = &Service{
		name: "keepwatch proxy", path: path, log: filepath.Join(dir, "proxy.log"),
		probe: ready,
	}
	return s.launch(ctx, func(port int) {
		listen := fmt.Sprintf("127.0.0.1:%d", port)
		if s.config != nil {
			s.config.Host = "https://" + listen
		}
		s.args = append([]string{"proxy", "--kubeconfig", behind.kubeconfig, "--listen", listen}, flags...)
	})
}
