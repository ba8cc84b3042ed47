package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

// BenchmarkRestart counts the lists that 20 informers make because an API server was
// restarted: the only one, and one of two. Before the restart something else is written,
// as in any cluster: the informers' revision is then older than the one with which the
// server's history begins after the restart.
func BenchmarkRestart(b *testing.B) {
	const informers = 20
	etcd := peer.StartEtcd(b)
	server := peer.KubernetesOn(b, etcd)
	db, err := etcd.Client()
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	if err := load.Fleet(b.Context(), server.Config(), db, *pods); err != nil {
		b.Fatal(err)
	}
	informed := build(b)
	namespaces := (*pods + 999) / 1000
	count := func(b *testing.B, name string, restarted *peer.Server, kubeconfig string) {
		for _, by := range []string{"client-go", "hook", "direct"} {
			p := start(b, informed, kubeconfig, by, "protobuf", "-informers", fmt.Sprint(informers), "-namespaces",
				fmt.Sprint(namespaces))
			p.ask("sync")
			before := p.ask("requests")
			touch(b, server)
			if err := restarted.Restart(b.Context()); err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(b.Context())
			var writers sync.WaitGroup
			writers.Go(func() { _, _ = write(ctx, server, namespaces) })
			p.ask("updates")
			stop()
			writers.Wait()
			after := p.ask("requests")
			b.Logf("%-22s %-10s %3.0f watches without history, %3.0f lists, %3.0f questions for the newest revision",
				name, by, after["tooOld"]-before["tooOld"], after["lists"]-before["lists"], after["probes"]-before["probes"])
			p.end()
		}
	}
	for b.Loop() {
		count(b, "kube-apiserver", server, server.Kubeconfig())
		count(b, "one of two", server, pair(b, etcd, server))
		serve := peer.ServeOn(b, etcd)
		count(b, "keepwatch serve", serve, serve.Kubeconfig())
	}
}

// pair starts a second kube-apiserver, which accepts the token of the first too, and
// returns a kubeconfig for both.
func pair(b *testing.B, etcd *peer.EtcdServer, first *peer.Server) (kubeconfig string) {
	b.Helper()
	second := peer.KubernetesOn(b, etcd)
	tokens := func(s *peer.Server) string { return filepath.Join(filepath.Dir(s.Kubeconfig()), "tokens.csv") }
	var all []byte
	for _, s := range []*peer.Server{first, second} {
		text, err := os.ReadFile(tokens(s))
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, text...)
	}
	if err := os.WriteFile(tokens(second), all, 0o600); err != nil {
		b.Fatal(err)
	}
	if err := second.Restart(b.Context()); err != nil {
		b.Fatal(err)
	}
	cfg := first.Config()
	cfg.Host = balance(b, first, second)
	cfg.CAData = slices.Concat(cfg.CAData, second.Config().CAData)
	kubeconfig = filepath.Join(b.TempDir(), "kubeconfig")
	if err := peer.WriteKubeconfig(kubeconfig, cfg); err != nil {
		b.Fatal(err)
	}
	return kubeconfig
}

// touch writes something that is no pod.
func touch(b *testing.B, server *peer.Server) {
	b.Helper()
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(b.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "touch-"},
	}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}
