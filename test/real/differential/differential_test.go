// Package differential compares the reads of keepwatch serve with those of a real
// kube-apiserver on the same etcd.
package differential

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/differential"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	seedFlag = flag.Uint64("differential.seed", 1,
		"draw requests and writes as a run did that printed this seed; 0 draws anew")
	requestsFlag = flag.Int("differential.requests", 5000, "how many requests to send to both servers")
	serveFlag    = flag.String("differential.serve", "", "flags for keepwatch serve, separated by spaces")
)

func TestMain(m *testing.M) { peer.Main(m) }

func TestServerSideBySide(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-differential.seed %d", seed)
	flags := strings.Fields(*serveFlag)
	comparison := differential.ServeBesideKubernetes()
	if slices.Contains(flags, "--storage=upstream") {
		comparison = differential.UpstreamBesideKubernetes()
	}
	report := differential.NewReport(comparison)
	t.Cleanup(func() { report.Print(t.Output()) }) // after the ends of the servers' logs
	etcd := peer.StartEtcd(t)
	// The lease that identifies the server is renewed every 10 s: a write that
	// belongs to no phase.
	theirs := peer.KubernetesOn(t, etcd, "--feature-gates",
		"APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false")
	world, err := differential.Build(t.Context(), differential.Plan{
		Etcd: etcd, Theirs: theirs, Comparison: comparison, Seed: seed,
		Ours: func() differential.Server { return peer.ServeOn(t, etcd, flags...) },
	})
	if world != nil {
		defer world.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := differential.Run(t.Context(), world, *requestsFlag, seed, report, t.Logf); err != nil {
		t.Fatal(err)
	}
	// A run that is refused everything compares nothing.
	if all, answered := report.Requests(); answered < all/2 {
		t.Errorf("only %d of %d requests are answered", answered, all)
	}
	if n := report.Differences(); n > 0 {
		t.Errorf("%d differences", n)
	}
}
