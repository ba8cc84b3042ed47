package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
)

// Cluster is a whole control plane: keepwatch-apiserver with Kubernetes' admission, its controllers and its
// scheduler, and KWOK, which simulates the kubelets of all nodes.
type Cluster struct {
	*Server
	ControllerManager, Scheduler, KWOK *Service
}

// StartCluster starts a cluster for the duration of the test. The flags are keepwatch-apiserver's; they
// follow the default ones and override them.
func StartCluster(tb testing.TB, flags ...string) *Cluster {
	tb.Helper()
	// What is built is not measured as part of a start.
	for _, b := range []Binary{KubeControllerManager, KubeScheduler, KWOK} {
		Build(tb, b)
	}
	etcd := StartEtcd(tb)
	server, err := startKubeAPIServer(tb.Context(), tb.TempDir(), etcd, buildKeepwatchAPIServer, flags)
	own(tb, server.Service, err)
	c := &Cluster{Server: server}
	for _, p := range []component{c.controllerManager(), c.scheduler(), c.kwok(tb)} {
		s, err := c.start(tb.Context(), tb.TempDir(), p)
		own(tb, s, err)
		*p.service = s
	}
	return c
}

// StartControllerManager starts kube-controller-manager with some of its controllers on a kube-apiserver, for the
// duration of the test. controllers is the value of its flag --controllers; flags follow the default ones.
func StartControllerManager(tb testing.TB, on *Server, controllers string, flags ...string) {
	tb.Helper()
	Build(tb, KubeControllerManager)
	c := &Cluster{Server: on}
	p := c.controllerManager()
	all := p.flags
	p.flags = func(port int, kubeconfig string) []string {
		return slices.Concat(all(port, kubeconfig), []string{"--controllers", controllers}, flags)
	}
	s, err := c.start(tb.Context(), tb.TempDir(), p)
	own(tb, s, err)
}

// StopComponents kills the API server's clients, after which nothing changes the cluster's objects.
func (c *Cluster) StopComponents() {
	for _, s := range []*Service{c.ControllerManager, c.Scheduler, c.KWOK} {
		s.Kill()
	}
}

// component is a client of the API server that is part of a cluster.
type component struct {
	service **Service
	binary  Binary
	user    string
	scheme  string // of its health checks
	flags   func(port int, kubeconfig string) []string
}

// unlimited are the flags of Kubernetes' clients without a rate limit that a story could reach.
var unlimited = []string{"--kube-api-qps", "5000", "--kube-api-burst", "10000"}

func (c *Cluster) controllerManager() component {
	return component{&c.ControllerManager, KubeControllerManager, controllerManagerUser, "https",
		func(port int, kubeconfig string) []string {
			return append(c.ownFlags(port, kubeconfig),
				"--use-service-account-credentials",
				"--service-account-private-key-file", c.files.serviceKey,
				"--root-ca-file", c.files.authority)
		}}
}

func (c *Cluster) scheduler() component {
	return component{&c.Scheduler, KubeScheduler, schedulerUser, "https", c.ownFlags}
}

// ownFlags are the flags that Kubernetes' own components share.
func (c *Cluster) ownFlags(port int, kubeconfig string) []string {
	return append([]string{
		"--kubeconfig", kubeconfig,
		"--authentication-kubeconfig", kubeconfig,
		"--authorization-kubeconfig", kubeconfig,
		"--bind-address", "127.0.0.1",
		"--secure-port", fmt.Sprint(port),
		"--tls-cert-file", c.files.cert,
		"--tls-private-key-file", c.files.key,
		// A component that loses its lease exits, and here nothing would start it again.
		"--leader-elect=false",
	}, unlimited...)
}

// kwok has KWOK's stages that make a node and a pod ready at once, and renews the leases of all nodes.
func (c *Cluster) kwok(tb testing.TB) component {
	tb.Helper()
	module, err := KWOK.sources(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	var flags []string
	for _, stage := range []string{"node/fast/node-initialize", "pod/fast/pod-ready", "pod/fast/pod-complete",
		"pod/fast/pod-delete"} {
		flags = append(flags, "--config", filepath.Join(module, "kustomize", "stage", stage+".yaml"))
	}
	return component{&c.KWOK, KWOK, kwokUser, "http", func(port int, kubeconfig string) []string {
		return append([]string{
			"--kubeconfig", kubeconfig,
			"--server-address", fmt.Sprintf("127.0.0.1:%d", port),
			"--manage-all-nodes",
			"--node-ip", "127.0.0.1",
			"--node-lease-duration-seconds", "40",
			"--cidr", "10.128.0.0/12",
		}, flags...)
	}}
}

func (c *Cluster) start(ctx context.Context, dir string, p component) (*Service, error) {
	path, err := p.binary.Path(ctx)
	if err != nil {
		return nil, err
	}
	config := c.Config()
	config.BearerToken = c.files.token[p.user]
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	s := &Service{name: p.binary.Name, path: path, log: filepath.Join(dir, p.binary.Name+".log")}
	return s, s.launch(ctx, func(port int) {
		s.args = p.flags(port, kubeconfig)
		s.probe = func(ctx context.Context) error {
			return healthy(ctx, fmt.Sprintf("%s://127.0.0.1:%d/healthz", p.scheme, port), c.files.ca)
		}
	})
}

// healthy requests a health check.
func healthy(ctx context.Context, url string, ca []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots},
		DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10)); response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	return nil
}
