package peer

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Server is a running Kubernetes API server: kube-apiserver or keepwatch serve. Tests with
// a Server run on both.
type Server struct {
	*Service
	endpoint   Endpoint    // of the server's etcd
	etcd       *EtcdServer // the same, or nil if the server embeds it
	config     *rest.Config
	kubeconfig string
	data       string                                // folder of keepwatch serve
	files      *credentials                          // of kube-apiserver
	build      func(context.Context) (string, error) // of kube-apiserver: the path of the program
}

// unmanaged are the flags of a server without controllers: none of them creates service accounts or
// makes nodes ready.
var unmanaged = []string{"--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition"}

var latestFlag = flag.Bool("peer.latest", false, "test with kube-apiserver of the version of keepwatch-apiserver")

// Kubernetes starts an etcd and a kube-apiserver on it for the duration of the test. The
// flags are kube-apiserver's; they follow the default ones and override them.
func Kubernetes(tb testing.TB, flags ...string) *Server {
	tb.Helper()
	return KubernetesOn(tb, StartEtcd(tb), flags...)
}

// KubernetesOn is Kubernetes on an etcd that runs already, which may serve
// other API servers too.
func KubernetesOn(tb testing.TB, etcd *EtcdServer, flags ...string) *Server {
	tb.Helper()
	program := KubeAPIServer
	if *latestFlag {
		program = LatestKubeAPIServer
	}
	return kubernetesOn(tb, etcd, program, flags)
}

func kubernetesOn(tb testing.TB, etcd *EtcdServer, program Binary, flags []string) *Server {
	tb.Helper()
	s, err := startKubeAPIServer(tb.Context(), tb.TempDir(), etcd, program.Path, slices.Concat(unmanaged, flags))
	own(tb, s.Service, err)
	return s
}

// ReplicaOf starts another kube-apiserver on the etcd of one, with the same certificate and the same users, as a second
// server of a control plane.
func ReplicaOf(tb testing.TB, of *Server, flags ...string) *Server {
	tb.Helper()
	return ReplicaOn(tb, of, of.endpoint, flags...)
}

// ReplicaOn is ReplicaOf with another address of the same etcd, that of a balancer for example.
func ReplicaOn(tb testing.TB, of *Server, endpoint Endpoint, flags ...string) *Server {
	tb.Helper()
	etcd := *of.etcd
	etcd.Endpoint = endpoint
	s, err := startKubeAPIServerAs(tb.Context(), tb.TempDir(), &etcd, of.files, of.build, slices.Concat(unmanaged, flags))
	own(tb, s.Service, err)
	return s
}

// At returns the server as clients see it at another address, that of a balancer for example. It has no process of its
// own.
func (s *Server) At(tb testing.TB, host string) *Server {
	tb.Helper()
	at := &Server{endpoint: s.endpoint, etcd: s.etcd, files: s.files, kubeconfig: filepath.Join(tb.TempDir(),
		"kubeconfig"), config: s.Config()}
	at.config.Host = host
	if err := WriteKubeconfig(at.kubeconfig, at.config); err != nil {
		tb.Fatal(err)
	}
	return at
}

// LatestKubernetes is Kubernetes with the version of keepwatch-apiserver.
func LatestKubernetes(tb testing.TB) *Server {
	tb.Helper()
	return LatestKubernetesOn(tb, StartEtcd(tb))
}

// LatestKubernetesOn is KubernetesOn with the version of keepwatch-apiserver.
func LatestKubernetesOn(tb testing.TB, etcd *EtcdServer, flags ...string) *Server {
	tb.Helper()
	return kubernetesOn(tb, etcd, LatestKubeAPIServer, flags)
}

// KeepwatchAPIServerOn is KubernetesOn with keepwatch-apiserver, which has Keepwatch inside.
func KeepwatchAPIServerOn(tb testing.TB, etcd *EtcdServer, flags ...string) *Server {
	tb.Helper()
	s, err := startKubeAPIServer(tb.Context(), tb.TempDir(), etcd, buildKeepwatchAPIServer, slices.Concat(unmanaged,
		flags))
	own(tb, s.Service, err)
	return s
}

// KeepwatchAPIServer builds the command keepwatch-apiserver from the tree as it is now, and returns its
// path.
func KeepwatchAPIServer(tb testing.TB) string {
	tb.Helper()
	path, err := keepwatchAPIServer()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// keepwatchAPIServer builds once in this process, with Kubernetes' version, as the Makefile does.
var keepwatchAPIServer = sync.OnceValues(func() (string, error) {
	root, err := TestModule()
	if err != nil {
		return "", err
	}
	version, err := requiredVersion(filepath.Join(root, "..", "kubernetes"), "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	return buildCommand("keepwatch-apiserver", "kubernetes", "./cmd/keepwatch-apiserver", "-ldflags", stamp(version))
})

func buildKeepwatchAPIServer(context.Context) (string, error) { return keepwatchAPIServer() }

func startKubernetes(ctx context.Context, dir string) (*Server, error) {
	etcd, err := startEtcd(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	s, err := startKubeAPIServer(ctx, dir, etcd, KubeAPIServer.Path, unmanaged)
	if err != nil {
		etcd.Kill()
	}
	return s, err
}

func startKubeAPIServer(ctx context.Context, dir string, etcd *EtcdServer, build func(context.Context) (string, error),
	flags []string) (*Server, error) {
	c, err := newCredentials(dir)
	if err != nil {
		return &Server{}, err
	}
	return startKubeAPIServerAs(ctx, dir, etcd, c, build, flags)
}

func startKubeAPIServerAs(ctx context.Context, dir string, etcd *EtcdServer, c *credentials,
	build func(context.Context) (string, error), flags []string) (*Server, error) {
	s := &Server{endpoint: etcd.Endpoint, etcd: etcd, kubeconfig: filepath.Join(dir, "kubeconfig"), files: c, build: build}
	path, err := build(ctx)
	if err != nil {
		return s, err
	}
	s.Service = &Service{
		name: filepath.Base(path), path: path, log: filepath.Join(dir, "kube-apiserver.log"),
		probe: s.complete,
	}
	err = s.launch(ctx, func(port int) {
		s.config = &rest.Config{
			Host:            fmt.Sprintf("https://127.0.0.1:%d", port),
			BearerToken:     c.token[adminUser],
			TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
			QPS:             -1,
		}
		s.args = append([]string{
			"--etcd-servers", string(etcd.Endpoint),
			"--bind-address", "127.0.0.1",
			"--secure-port", fmt.Sprint(port),
			"--tls-cert-file", c.cert,
			"--tls-private-key-file", c.key,
			"--token-auth-file", c.tokens,
			"--service-account-issuer", s.config.Host,
			"--service-account-key-file", c.serviceKey,
			"--service-account-signing-key-file", c.serviceKey,
			"--service-cluster-ip-range", "10.0.0.0/16",
			"--authorization-mode", "RBAC",
			"--endpoint-reconciler-type", "none",
			// Tests compact the history themselves.
			"--etcd-compaction-interval", "0",
			"--shutdown-delay-duration", "0",
		}, flags...)
	})
	if err != nil {
		return s, err
	}
	return s, WriteKubeconfig(s.kubeconfig, s.config)
}

// Config returns a new client configuration with all permissions, exempt from the server's
// priority and fairness, and without a client-side rate limit. Set Impersonate for an
// ordinary user.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.config) }

// ServiceAccountKey returns the file of the private key, PEM, with which a kube-apiserver signs tokens of service
// accounts.
func (s *Server) ServiceAccountKey() string { return s.files.serviceKey }

// PlainUsers returns users of a kube-apiserver to whom nothing is bound at first. They are in all combinations of
// some groups.
func (s *Server) PlainUsers() []User { return s.files.plain }

// Kubeconfig is a file with the same access as Config.
func (s *Server) Kubeconfig() string { return s.kubeconfig }

// Data returns the data folder of keepwatch serve.
func (s *Server) Data() string { return s.data }

// Etcd returns the server's etcd, or nil if the server embeds one.
func (s *Server) Etcd() *EtcdServer { return s.etcd }

// Endpoint returns the server's etcd, embedded or not.
func (s *Server) Endpoint() Endpoint { return s.endpoint }

// Compact is [Endpoint.Compact] on the server's etcd.
func (s *Server) Compact(ctx context.Context) (revision int64, err error) {
	return s.endpoint.Compact(ctx)
}

// ready reports whether the server is ready and has the namespace default, which it
// creates afterwards.
func (s *Server) ready(ctx context.Context) error { return s.has(ctx, "default") }

// complete is ready of kube-apiserver, two of whose controllers create namespaces beside each other.
func (s *Server) complete(ctx context.Context) error {
	return s.has(ctx, "default", "kube-system", "kube-public", "kube-node-lease")
}

func (s *Server) has(ctx context.Context, namespaces ...string) error {
	paths := []string{"/readyz"}
	for _, name := range namespaces {
		paths = append(paths, "/api/v1/namespaces/"+name)
	}
	for _, path := range paths {
		body, err := s.get(ctx, path)
		if err != nil {
			return err
		}
		body.Close()
	}
	return nil
}

// get requests path and returns the body. The connection ends with the body.
func (s *Server) get(ctx context.Context, path string) (io.ReadCloser, error) {
	tls, err := rest.TLSConfigFor(s.config)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.Host+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.config.BearerToken)
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return nil, fmt.Errorf("GET %s: %s: %s", path, response.Status, text)
	}
	return response.Body, nil
}
