// Package clients follows keepwatch serve with unmodified clients of other projects,
// through cut connections, compactions and restarts.
package clients

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) {
	// The stories wait, mostly.
	if err := flag.Set("test.parallel", fmt.Sprint(len(stories))); err != nil {
		panic(err)
	}
	peer.Main(m)
}

const (
	// agreeTimeout bounds the time until a client agrees with the server: clients wait for up to
	// half a minute between attempts.
	agreeTimeout = 3 * time.Minute
	pollInterval = 50 * time.Millisecond
	namespace    = "followed"
	rounds       = 2 // one with each outage
)

// state is the current objects, by name: UID and revision.
type state map[string]string

// client is a client that follows the pods of the namespace.
type client interface {
	// states returns the client's cached state and the fold of its events, if it has both.
	states() ([]state, error)
}

// scene is a server with its clients, and the faults between them.
type scene struct {
	*testing.T
	server  *peer.Server
	proxy   *faults.Proxy // between the clients and the server
	churn   *load.Churn   // past the proxy
	random  *rand.Rand
	clients map[string]client
}

// TestClients lets all clients follow one server, through a proxy.
func TestClients(t *testing.T) {
	server := peer.Serve(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := &scene{
		T: t, server: server, random: rand.New(rand.NewPCG(seed, 0)),
		proxy: faults.New(t, server.Config(), faults.Plan{Seed: seed}),
		churn: &load.Churn{Resource: load.Pods, Namespace: namespace, Names: 100, Seed: seed, Make: load.SmallPod},
	}
	s.prepare()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := peer.WriteKubeconfig(kubeconfig, s.proxy.Config()); err != nil {
		t.Fatal(err)
	}
	s.clients = map[string]client{
		"client-go": newInformer(t, s.proxy.Config()),
		"kubectl":   newKubectl(t, kubeconfig),
	}
	if node, err := newJavaScript(t, kubeconfig); err != nil {
		t.Run("JavaScript", func(t *testing.T) { t.Skip(err) })
	} else {
		s.clients["JavaScript"] = node
	}
	for round := range rounds {
		s.disturbed()
		s.agree(fmt.Sprintf("round %d, behind cuts", round))
		if round%2 == 0 {
			s.downtime()
		} else {
			s.restart()
		}
		s.agree(fmt.Sprintf("round %d, behind an outage", round))
	}
	t.Logf("%d watches and %d lists came through the proxy", s.proxy.Count(faults.Watch, "pods"),
		s.proxy.Count(faults.List, "pods"))
}

func (s *scene) prepare() {
	s.Helper()
	api, err := kubernetes.NewForConfig(s.server.Config())
	if err != nil {
		s.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := api.CoreV1().Namespaces().Create(s.Context(), ns, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	s.must(s.churn.Connect(s.server.Config()))
	s.must(s.churn.Create(s.Context()))
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// disturbed writes while watches are ended in every possible way.
func (s *scene) disturbed() {
	s.Helper()
	done := make(chan error, 1)
	go func() { done <- s.churn.Run(s.Context(), 240) }()
	cuts := []faults.Fault{faults.End, faults.Cut, faults.Tear, faults.Reset}
	for {
		select {
		case err := <-done:
			s.must(err)
			return
		case <-time.After(time.Duration(100+s.random.IntN(400)) * time.Millisecond):
			s.proxy.Now(faults.Watch, faults.Any, cuts[s.random.IntN(len(cuts))])
		}
	}
}

// downtime writes and compacts while no client reaches the server.
func (s *scene) downtime() {
	s.Helper()
	s.must(s.proxy.Down())
	s.must(s.churn.Run(s.Context(), 160))
	s.compact()
	s.must(s.proxy.Up())
}

// restart writes, kills the server, and compacts the history of the writes: the new server
// has none of it.
func (s *scene) restart() {
	s.Helper()
	s.must(s.proxy.Down())
	s.must(s.churn.Run(s.Context(), 160))
	s.compact()
	s.server.Kill()
	s.must(s.server.Restart(s.Context()))
	s.must(s.proxy.Up())
}

func (s *scene) compact() {
	s.Helper()
	_, err := s.server.Compact(s.Context())
	s.must(err)
}

// agree waits until every client's state equals the server's.
func (s *scene) agree(when string) {
	s.Helper()
	objects, err := s.churn.State(s.Context())
	s.must(err)
	want := state{}
	for _, o := range objects {
		want[o.GetName()] = fmt.Sprintf("%s/%s", o.GetUID(), o.GetResourceVersion())
	}
	ctx, cancel := context.WithTimeout(s.Context(), agreeTimeout)
	defer cancel()
	for name, c := range s.clients {
		for {
			got, err := c.states()
			s.must(err)
			if got[0].equals(want) && got[len(got)-1].equals(want) {
				break
			}
			select {
			case <-time.After(pollInterval):
				continue
			case <-ctx.Done():
			}
			s.Fatalf("%s: %s holds %v,\nits events lead to %v,\nthe server has %v", when, name, got[0], got[len(got)-1], want)
		}
	}
}

func (s state) equals(other state) bool { return maps.Equal(s, other) }
