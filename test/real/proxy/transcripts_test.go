package proxy

import (
	"flag"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/server/proxy"
	"github.com/keepwatch/keepwatch/test/peer"
	"github.com/keepwatch/keepwatch/test/rawwatch"
)

var (
	watchesFlag = flag.Int("proxy.watches", 40, "how many watches TestTranscripts judges")
	roundsFlag  = flag.Int("proxy.rounds", 1,
		"how often TestTranscripts cuts all connections to the API servers, and those of one proxy's clients")
)

// betweenProxiesAndServers is what goes wrong with the watches by which the proxies follow resources.
const betweenProxiesAndServers = `
rules:
- {match: {verb: watch}, probability: 0.3, fault: cut, after: {events: 60, random: true}}
- {match: {verb: watch}, probability: 0.3, fault: tear, after: {bytes: 30000, random: true}}
- {match: {verb: watch}, probability: 0.3, fault: reset, after: {events: 60, random: true}}
- {match: {verb: watch}, probability: 0.5, fault: stall, after: {events: 60, random: true}, for: 300ms}
- {match: {verb: list}, probability: 0.1, fault: delay, for: 200ms}
`

// TestTranscripts judges the transcripts of watches of every kind by the promises of package keepwatch, against etcd's
// history. The watches go through two proxies in turn, while their connections to two API servers are cut, torn, reset
// and stalled, and one of the API servers is behind. Writers write at the API servers and at the proxies.
func TestTranscripts(t *testing.T) {
	etcd := peer.StartEtcd(t)
	first := peer.KubernetesOn(t, etcd)
	second := peer.ReplicaOf(t, first)
	servers := newBalancer(t, first.Config().Host, second.Config().Host)
	servers.setLag(1, 700*time.Millisecond)
	balanced := first.At(t, servers.url)
	plan, err := faults.ParsePlan([]byte(betweenProxiesAndServers))
	if err != nil {
		t.Fatal(err)
	}
	plan.Seed = *seedFlag
	between := faults.New(t, balanced.Config(), plan)
	var fronts []*front
	var clients []*rest.Config
	for range 2 {
		f := newFront(t, proxy.Config{Server: between.Config()})
		fronts, clients = append(fronts, f), append(clients, f.Config())
	}
	client, err := etcd.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	trial := rawwatch.StartBehind(t, first.Config(), client, clients, *watchesFlag, func() {
		for _, f := range fronts {
			f.cache("/api/v1/configmaps", "application/json")
			f.cache("/api/v1/configmaps", "application/vnd.kubernetes.protobuf")
			f.cache("/apis/example.com/v1/widgets", "application/json")
		}
	})
	for round := range *roundsFlag {
		trial.Written(100)
		servers.cut()
		trial.Written(100)
		fronts[round%len(fronts)].server.CloseClientConnections() // watches go on at the next proxy
	}
	trial.Written(200)
	between.Calm()
	servers.setLag(1, 0)
	servers.cut()
	trial.Judge()
	met, relists, answered := 0, 0.0, 0.0
	for _, e := range between.Transcript() {
		met += len(e.Faults)
	}
	for _, f := range fronts {
		relists += f.sum("keepwatch_storage_relists_total")
		answered += f.answered()
	}
	t.Logf("seed %d: %d faults, %.0f requests were answered from memory, the proxies listed %.0f times more", plan.Seed,
		met, answered, relists)
	if met < 10 || answered < float64(*watchesFlag) {
		t.Errorf("this is no proof: %d faults, %.0f requests answered from memory", met, answered)
	}
}

// cache waits until the proxy answers reads of a resource from memory. Nobody else may read it meanwhile.
func (f *front) cache(path, accept string) {
	f.Helper()
	client, err := rest.HTTPClientFor(f.Config())
	if err != nil {
		f.Fatal(err)
	}
	defer client.CloseIdleConnections()
	await.True(f, path+" is answered from memory as "+accept, func() bool {
		q, err := http.NewRequestWithContext(f.Context(), http.MethodGet, f.server.URL+path+"?resourceVersion=0", nil)
		if err != nil {
			f.Fatal(err)
		}
		q.Header.Set("Accept", accept)
		before := f.answered()
		response, err := client.Do(q)
		if err != nil {
			return false // the connection behind the proxy is faulty
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK && f.answered() > before
	})
}
