// Package apiserver compares keepwatch-apiserver with kube-apiserver of the same version, and its two ways to answer
// reads: by Keepwatch, and by Kubernetes' own watch cache.
package apiserver

import (
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/differential"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	seedFlag = flag.Uint64("apiserver.seed", 1,
		"draw requests and writes as a run did that printed this seed; 0 draws anew")
	requestsFlag = flag.Int("apiserver.requests", 2000,
		"how many requests to send to both servers, in all variants together")
)

func TestMain(m *testing.M) { peer.Main(m) }

// notShort skips a test with -short: make verify runs it.
func notShort(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short it is NOT tested: make verify AREA=kubernetes")
	}
}

// common are the flags of all servers. A lease of the server's identity is renewed every 10 s: a write
// that belongs to no phase. Node restricts nodes to their own pods.
var common = []string{
	"--feature-gates", "APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false",
	"--runtime-config", "api/all=true",
	"--authorization-mode", "Node", // beside RBAC
}

// variant is a configuration of both servers.
type variant struct {
	name  string
	share int // of the requests, in percent
	flags func(*testing.T) []string
}

var variants = []variant{
	{"plain", 40, func(*testing.T) []string { return nil }},
	{"encrypted with KMS", 20, func(t *testing.T) []string {
		return []string{"--encryption-provider-config", writeEncryption(t, filepath.Join(t.TempDir(), "encryption.yaml"),
			kmsProvider(startKMS(t)), identity)}
	}},
	{"encrypted with a key, with cached events", 20, func(t *testing.T) []string {
		return []string{"--encryption-provider-config", writeEncryption(t, filepath.Join(t.TempDir(), "encryption.yaml"),
			secretbox("b"), aescbc("a"), identity),
			"--watch-cache-sizes", "events#100"}
	}},
	{"stored as JSON, with CBOR", 20, func(*testing.T) []string {
		return []string{"--storage-media-type", "application/json", "--feature-gates", "CBORServingAndStorage=true"}
	}},
}

// TestReadsSideBySide sends the same requests to kube-apiserver and keepwatch-apiserver on one etcd.
func TestReadsSideBySide(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-apiserver.seed %d", seed)
	samples, err := differential.ReadSamples(moduleDir(t))
	if err != nil {
		t.Fatal(err)
	}
	variants, requests := variants, *requestsFlag
	if testing.Short() {
		variants, requests = variants[:1], min(requests, 1000)
	}
	for i, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			compareReads(t, seed+uint64(i), samples, requests*v.share/100, v.flags(t))
		})
	}
}

func compareReads(t *testing.T, seed uint64, samples []differential.Sample, requests int, flags []string) {
	comparison := differential.SameVersion()
	report := differential.NewReport(comparison)
	t.Cleanup(func() { report.Print(t.Output()) }) // after the ends of the servers' logs
	etcd := peer.StartEtcd(t)
	flags = append(flags, common...)
	upstream := peer.LatestKubernetesOn(t, etcd, flags...)
	world, err := differential.Build(t.Context(), differential.Plan{
		Etcd: etcd, Theirs: upstream, Comparison: comparison, Seed: seed, Samples: samples,
		Ours: func() differential.Server { return peer.KeepwatchAPIServerOn(t, etcd, flags...) },
	})
	if world != nil {
		defer world.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if lacking := world.Lacking(); len(lacking) > 0 {
		t.Errorf("no objects of %s", strings.Join(lacking, ", "))
	}
	if err := differential.Run(t.Context(), world, requests, seed, report, t.Logf); err != nil {
		t.Fatal(err)
	}
	if all, answered := report.Requests(); answered < all/2 {
		t.Errorf("only %d of %d requests are answered", answered, all)
	}
	if n := report.Differences(); n > 0 {
		t.Errorf("%d differences", n)
	}
}

// moduleDir is the folder of the module k8s.io/kubernetes.
func moduleDir(t *testing.T) string {
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	list.Dir, list.Stderr = filepath.Join("..", "..", "..", "kubernetes"), os.Stderr
	dir, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(dir))
}
