// Package apiserver compares keepwatch-apiserver's two ways to answer reads: by Keepwatch, and by
// Kubernetes' own watch cache.
package apiserver

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/keepwatch/keepwatch/test/differential"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	seedFlag     = flag.Uint64("apiserver.seed", 1, "draw requests and writes as a run did that printed this seed; 0 draws anew")
	requestsFlag = flag.Int("apiserver.requests", 3000, "how many requests to send to both servers")
)

func TestMain(m *testing.M) { peer.Main(m) }

// TestReadsSideBySide sends the same requests to two servers on one etcd.
func TestReadsSideBySide(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-apiserver.seed %d", seed)
	report := differential.NewReport(false)
	t.Cleanup(func() { report.Print(t.Output()) }) // after the ends of the servers' logs
	etcd := peer.StartEtcd(t)
	// A lease of the server's identity is renewed every 10 s: a write that belongs to no phase.
	// Compressed watches are not built.
	flags := []string{"--feature-gates", "APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false,WatchListCompression=false"}
	upstream := peer.KeepwatchAPIServerOn(t, etcd, append(flags, "--reads=upstream")...)
	world, err := differential.Build(t.Context(), etcd, upstream, func() *peer.Server {
		return peer.KeepwatchAPIServerOn(t, etcd, flags...)
	}, seed)
	if world != nil {
		defer world.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := differential.Run(t.Context(), world, *requestsFlag, seed, report, t.Logf); err != nil {
		t.Fatal(err)
	}
	if all, answered := report.Requests(); answered < all/2 {
		t.Errorf("only %d of %d requests are answered", answered, all)
	}
	if n := report.Differences(); n > 0 {
		t.Errorf("%d differences", n)
	}
}
