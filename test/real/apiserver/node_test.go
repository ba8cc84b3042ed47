package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// node is a control-plane node that kubeadm has set up. Its root folder takes the place of the container:
// it has an image's files and, at their own paths, what the manifest and the runtime mount.
type node struct {
	root      string
	path      string // PATH in the container
	container corev1.Container
	host      string
	etcd      *clientv3.Client
	server    *peer.Process
}

// kubeadmConfig has ports that are free on this machine, and is kubeadm's default otherwise.
const kubeadmConfig = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.0.2.1, bindPort: %d}
nodeRegistration: {name: node, criSocket: "unix:///run/containerd.sock"}
patches: {directory: /patches}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.37.2
apiServer:
  certSANs: [127.0.0.1]
  extraArgs: [{name: bind-address, value: 127.0.0.1}]
etcd:
  local:
    dataDir: /var/lib/etcd
    extraArgs: [{name: advertise-client-urls, value: "https://127.0.0.1:%d"}]
`

// newNode runs kubeadm, and an etcd with kubeadm's certificates.
func newNode(t *testing.T) *node {
	t.Helper()
	if out, err := exec.Command("unshare", "--map-root-user", "--root=/", "true").CombinedOutput(); err != nil {
		t.Skipf("this machine does not let users have namespaces: %s", out)
	}
	var ports [2]int
	for i := range ports {
		var err error
		if ports[i], err = localhost.FreePort(); err != nil {
			t.Fatal(err)
		}
	}
	n := &node{root: t.TempDir(), path: "/", host: fmt.Sprintf("https://127.0.0.1:%d", ports[0])}
	if err := os.WriteFile(filepath.Join(n.root, "kubeadm.yaml"), fmt.Appendf(nil, kubeadmConfig, ports[0], ports[1]),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(n.root, "patches"), 0o755), install(filepath.Join(n.root, "dev/null"),
		strings.NewReader(""))); err != nil {
		t.Fatal(err)
	}
	n.install(t, peer.Build(t, peer.Kubeadm), "/kubeadm")
	n.kubeadm(t, "certs", "all")
	n.kubeadm(t, "kubeconfig", "all")
	n.container = n.manifest(t)
	n.startEtcd(t, fmt.Sprintf("https://127.0.0.1:%d", ports[1]))
	return n
}

// install copies a program into the container.
func (n *node) install(t *testing.T, program, path string) {
	t.Helper()
	text, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if err := install(filepath.Join(n.root, path), text); err != nil {
		t.Fatal(err)
	}
}

// command starts a program in the container, as root or another user of it.
func (n *node) command(user string, command ...string) (program string, args []string) {
	return "unshare", append([]string{"--user", "--map-user=" + user, "--map-group=" + user, "--root=" + n.root, "--"},
		command...)
}

const root = "0"

// run returns what a program prints.
func (n *node) run(t *testing.T, user string, command ...string) string {
	t.Helper()
	program, args := n.command(user, command...)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "PATH="+n.path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", command, err, out)
	}
	return string(out)
}

// kubeadm runs a phase of kubeadm init.
func (n *node) kubeadm(t *testing.T, phase ...string) {
	t.Helper()
	n.run(t, root, slices.Concat([]string{"/kubeadm", "init", "phase"}, phase, []string{"--config", "/kubeadm.yaml"})...)
}

// manifest returns the container of kube-apiserver's manifest as kubeadm writes it.
func (n *node) manifest(t *testing.T) corev1.Container {
	t.Helper()
	n.kubeadm(t, "control-plane", "apiserver")
	text, err := os.ReadFile(filepath.Join(n.root, "etc/kubernetes/manifests/kube-apiserver.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(text, &pod); err != nil {
		t.Fatal(err)
	}
	return pod.Spec.Containers[0]
}

func (n *node) pki(name string) string { return filepath.Join(n.root, "etc/kubernetes/pki", name) }

// startEtcd runs etcd with TLS, as kubeadm's manifest does.
func (n *node) startEtcd(t *testing.T, url string) {
	t.Helper()
	dir := t.TempDir()
	process, err := peer.Start(peer.Command{Path: peer.Build(t, peer.Etcd), Log: filepath.Join(dir, "log"), Args: []string{
		"--data-dir", filepath.Join(dir, "data"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", url, "--advertise-client-urls", url, "--client-cert-auth",
		"--cert-file", n.pki("etcd/server.crt"), "--key-file", n.pki("etcd/server.key"), "--trusted-ca-file",
		n.pki("etcd/ca.crt"),
		"--listen-peer-urls", "http://127.0.0.1:0", "--initial-advertise-peer-urls", "http://127.0.0.1:0",
		"--initial-cluster", "default=http://127.0.0.1:0",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Kill)
	pair, err := tls.LoadX509KeyPair(n.pki("apiserver-etcd-client.crt"), n.pki("apiserver-etcd-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	n.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop(),
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: n.authority(t, "etcd/ca.crt")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.etcd.Close() })
}

func (n *node) authority(t *testing.T, name string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(n.pki(name))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

// start runs the manifest's command until the API server is ready.
func (n *node) start(t *testing.T, user string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	program, args := n.command(user, n.container.Command...)
	process, err := peer.Start(peer.Command{Path: program, Args: args, Env: []string{"PATH=" + n.path}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Kill()
		if text, _ := os.ReadFile(log); t.Failed() {
			t.Logf("%s", text[max(0, len(text)-4<<10):])
		}
	})
	n.server = process
	client, err := rest.HTTPClientFor(n.config(t, "super-admin.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(await.Deadline); ; {
		response, err := client.Get(n.host + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == 200 {
				return
			}
		}
		select {
		case <-process.Done():
			t.Fatalf("%v ended with exit code %d", n.container.Command[0], process.ExitCode())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatalf("not ready: %v, %v", response, err)
		}
	}
}

// stop ends the API server as the kubelet does.
func (n *node) stop(t *testing.T) {
	t.Helper()
	if err := n.server.Stop(90 * time.Second); err != nil {
		t.Fatal(err)
	}
}

// config is the access that one of kubeadm's kubeconfigs gives.
func (n *node) config(t *testing.T, name string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(n.root, "etc/kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	config.Host, config.QPS = n.host, -1
	config.CertFile, config.KeyFile = n.inRoot(config.CertFile), n.inRoot(config.KeyFile)
	return config
}

func (n *node) inRoot(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Join(n.root, path)
}

// ofServers matches the keys that every API server writes when it starts, while it runs and when it stops: its leases,
// and its address among those of the service default/kubernetes.
var ofServers = regexp.MustCompile(
	`^/registry/(leases/kube-system/apiserver-.*|masterleases/.*|(endpointslices|services/endpoints)/default/kubernetes)$`)

// contents returns all keys of etcd and their values, except those of ofServers.
func (n *node) contents(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	all, err := n.etcd.Get(ctx, "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string]string{}
	for _, kv := range all.Kvs {
		if !ofServers.Match(kv.Key) {
			contents[string(kv.Key)] = string(kv.Value)
		}
	}
	return contents
}
