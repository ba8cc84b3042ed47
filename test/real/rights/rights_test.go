// Package rights compares the decisions of a test server with RBAC with those of kube-apiserver: about the requests of
// users with random rights, about the rights that they list, and about those that they grant to others.
package rights

import (
	"flag"
	"math/rand/v2"
	"net/http"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	decisions = flag.Int("rights.decisions", 3000, "how many random decisions to compare")
	seedFlag  = flag.Uint64("rights.seed", 1, "draw roles and requests as a run did that printed this seed; 0 draws anew")
)

func TestMain(m *testing.M) { peer.Main(m) }

// rounds is how often the roles change.
const rounds = 6

// The servers decide alike about everything, whatever roles and bindings there are.
func TestDecisions(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-rights.seed %d", seed)
	w := newWorld(t, rand.New(rand.NewPCG(seed, 18)))
	counts := map[string]int{}
	for range 40 {
		w.change()
	}
	for range rounds {
		for range 15 {
			w.change()
		}
		w.settle()
		w.compare((*decisions+rounds-1)/rounds, counts)
	}
	t.Logf("%d decisions: %v", *decisions, counts)
	for _, kind := range []string{"allowed", "denied", "rules", "granted", "refused"} {
		if counts[kind] < *decisions/200 {
			t.Errorf("the decisions are not mixed enough: %v", counts)
		}
	}
}

// side is one of the two servers.
type side struct {
	name   string
	config *rest.Config
	admin  kubernetes.Interface
	http   *http.Client
}

// as returns a client of the administrator who acts as a user. All share their connections.
func (s *side) as(who identity) (kubernetes.Interface, error) {
	client := *s.http
	client.Transport = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: who.name,
		Groups: who.groups}, s.http.Transport)
	return kubernetes.NewForConfigAndClient(s.config, &client)
}

func newSides(t *testing.T) []*side {
	t.Helper()
	real := peer.Kubernetes(t)
	ours := testserver.New(t, testserver.RBAC())
	sides := []*side{{name: "kube-apiserver", config: real.Config()}, {name: "testserver", config: ours.Config()}}
	for _, s := range sides {
		var err error
		if s.http, err = rest.HTTPClientFor(s.config); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.http.CloseIdleConnections)
		if s.admin, err = kubernetes.NewForConfigAndClient(s.config, s.http); err != nil {
			t.Fatal(err)
		}
	}
	return sides
}

// compare sends n random requests to both servers, and counts the answers by their kind. Requests are drawn before they
// are sent, so that a seed replays.
func (w *world) compare(n int, counts map[string]int) {
	w.t.Helper()
	requests := make([]request, n)
	for i := range requests {
		requests[i] = w.request()
	}
	answers := make([][]answer, n)
	var sending errgroup.Group
	sending.SetLimit(8)
	for i, r := range requests {
		sending.Go(func() error {
			for _, s := range w.sides {
				answers[i] = append(answers[i], r.send(w.t.Context(), s))
			}
			return nil
		})
	}
	_ = sending.Wait() // errors are answers
	for i, both := range answers {
		counts[both[0].kind]++
		if both[0] != both[1] {
			w.t.Errorf("%s\n%s: %+v\n%s: %+v", requests[i], w.sides[0].name, both[0], w.sides[1].name, both[1])
		}
	}
}
