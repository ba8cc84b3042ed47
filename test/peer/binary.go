// Package peer builds the real programs that Keepwatch is tested against
// (kube-apiserver and its controllers, etcd, kine, kubectl, KWOK) and Keepwatch itself, and
// runs them as processes that a test owns.
//
// A test starts the servers that it needs:
//
//	server := peer.Kubernetes(t)                 // etcd and kube-apiserver
//	server := peer.Serve(t)                      // keepwatch serve
//	client := kubernetes.NewForConfigOrDie(server.Config())
//	server.Kubectl(t, "get", "pods", "-A")
//
// All programs listen on 127.0.0.1, write below a folder of the test, and end with the
// test, also if the test binary is killed (on Linux). A test that fails prints the end of
// its servers' logs.
package peer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// Binary is a program of another project, built unchanged from the Go module
// proxy. A module of its own pins its version and its libraries' versions.
type Binary struct {
	Name   string
	module string // folder of the pinning module, below the test module
	pkg    string // main package: relative to that folder, or a tool of its module
	pinned string // path of the required module that has the program's version
	tags   string // of the build, comma separated
}

// The programs of other projects.
var (
	KubeAPIServer = Binary{"kube-apiserver", "kubernetes", "./kube-apiserver", "k8s.io/kubernetes", ""}
	Etcd          = Binary{"etcd", "kubernetes", "./etcd", "go.etcd.io/etcd/server/v3", ""}
	Kubectl       = Binary{"kubectl", "kubectl", ".", "k8s.io/kubectl", ""}
	// Kine has SQLite without cgo, and an embedded NATS.
	Kine = Binary{"kine", "kubernetes/kine", ".", "github.com/k3s-io/kine", "nats"}
	// Etcdutl has the command snapshot.
	Etcdutl = Binary{"etcdutl", "kubernetes/etcdutl", ".", "go.etcd.io/etcd/etcdutl/v3", ""}
	// These have the version of keepwatch-apiserver.
	Kubeadm               = Binary{"kubeadm", "kubeadm", "./kubeadm", "k8s.io/kubernetes", ""}
	LatestKubeAPIServer   = Binary{"kube-apiserver", "kubeadm", "./kube-apiserver", "k8s.io/kubernetes", ""}
	KubeControllerManager = Binary{"kube-controller-manager", "controlplane", "./kube-controller-manager",
		"k8s.io/kubernetes", ""}
	KubeScheduler = Binary{"kube-scheduler", "controlplane", "./kube-scheduler", "k8s.io/kubernetes", ""}
	// KCP serves workspaces, each of which is like a cluster.
	KCP = Binary{"kcp", "kcp", "github.com/kcp-dev/kcp/cmd/kcp", "github.com/kcp-dev/kcp", ""}
	// K9s shows a cluster in a terminal.
	K9s = Binary{"k9s", "k9s", "github.com/derailed/k9s", "github.com/derailed/k9s", ""}
	// OpenTelemetry is a collector with the receiver k8sobjects.
	OpenTelemetry = Binary{"otelcol", "otel", ".",
		"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/k8sobjectsreceiver", ""}
	// KWOK simulates kubelets.
	KWOK = Binary{"kwok", "kwok", ".", "sigs.k8s.io/kwok", ""}
	// KubeStateMetrics shows the state of objects as Prometheus' metrics.
	KubeStateMetrics = Binary{"kube-state-metrics", "kube-state-metrics", "k8s.io/kube-state-metrics/v2",
		"k8s.io/kube-state-metrics/v2", ""}
)

// Binaries are the programs of other projects that tests need, the slowest to build first.
var Binaries = []Binary{KubeAPIServer, LatestKubeAPIServer, KubeControllerManager, KubeScheduler, KubeStateMetrics,
	KWOK, Kine, Kubectl, Etcd, Etcdutl}

// Version is the version that the program gives as its own, such as v1.36.3.
func (b Binary) Version() (string, error) {
	dir, err := b.dir()
	if err != nil {
		return "", err
	}
	return requiredVersion(dir, b.pinned)
}

// requiredVersion returns the version of a module that the module in a folder requires.
func requiredVersion(dir, module string) (string, error) {
	file := filepath.Join(dir, "go.mod")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	mod, err := modfile.Parse(file, text, nil)
	if err != nil {
		return "", err
	}
	for _, r := range mod.Require {
		if r.Mod.Path == module {
			// Kubernetes releases its libraries for v1.N as v0.N.
			if rest, ok := strings.CutPrefix(r.Mod.Version, "v0."); ok && strings.HasPrefix(module, "k8s.io/") {
				return "v1." + rest, nil
			}
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", file, module)
}

func (b Binary) dir() (string, error) {
	root, err := TestModule()
	return filepath.Join(root, b.module), err
}

// stamp are linker flags that give a program of Kubernetes its version, as Kubernetes' scripts do.
func stamp(version string) string {
	const set = " -X k8s.io/component-base/version."
	numbers := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return set + "gitVersion=" + version + set + "gitMajor=" + numbers[0] + set + "gitMinor=" + numbers[1]
}

// buildArgs are the arguments of the go command, without the output file.
func (b Binary) buildArgs(version string) []string {
	link := "-s -w"
	switch {
	case strings.HasPrefix(b.pinned, "k8s.io/"):
		link += stamp(version)
	case b == KCP: // its own scripts do the same
		link += stamp("v1.26.3+kcp-" + version)
	}
	args := []string{"build", "-trimpath", "-ldflags", link}
	if b.tags != "" {
		args = append(args, "-tags", b.tags)
	}
	return append(args, b.pkg)
}
