package proxy

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/keepwatch/keepwatch/server/proxy"
	"github.com/keepwatch/keepwatch/test/differential"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	seedFlag = flag.Uint64("proxy.seed", 1,
		"draw requests and writes as a run did that printed this seed; 0 draws anew")
	requestsFlag = flag.Int("proxy.requests", 800,
		"how many requests to send to the proxies and to the servers of both versions")
)

// Random reads in all encodings, pages and watches: the proxy's answers are those of the server behind it, whose
// version is that of the proxy's libraries, or older.
func TestProxySideBySide(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-proxy.seed %d", seed)
	t.Run("default version", func(t *testing.T) { compareWithServer(t, peer.KubernetesOn, seed, *requestsFlag/2) })
	t.Run("latest version", func(t *testing.T) { compareWithServer(t, peer.LatestKubernetesOn, seed, *requestsFlag/2) })
}

func compareWithServer(t *testing.T, start func(testing.TB, *peer.EtcdServer, ...string) *peer.Server, seed uint64,
	requests int) {
	comparison := differential.FrontOfKubernetes()
	report := differential.NewReport(comparison)
	t.Cleanup(func() { report.Print(t.Output()) })
	etcd := peer.StartEtcd(t)
	// The lease that identifies the server is renewed every 10 s: a write that belongs to no phase.
	theirs := start(t, etcd, "--feature-gates", "APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false")
	var front *front
	world, err := differential.Build(t.Context(), differential.Plan{
		Etcd: etcd, Theirs: theirs, Comparison: comparison, Seed: seed,
		Ours: func() differential.Server {
			front = newFront(t, proxy.Config{Server: theirs.Config(), SmallCollection: -1})
			return front
		},
	})
	if world != nil {
		defer world.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := differential.Run(t.Context(), world, requests, seed, report, t.Logf); err != nil {
		t.Fatal(err)
	}
	if all, answered := report.Requests(); answered < all/2 {
		t.Errorf("only %d of %d requests are answered", answered, all)
	}
	if n := front.answered(); n < float64(requests)/5 {
		t.Errorf("only %v requests are answered from caches", n)
	}
	if n := front.relists + front.sum("keepwatch_storage_relists_total"); n > 0 {
		t.Errorf("the proxy listed %v times after its first lists", n)
	}
	if n := report.Differences(); n > 0 {
		t.Errorf("%d differences", n)
	}
}
