package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/history"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	informersFlag = flag.Int("proxy.informers", 20, "how many informers TestNothingRelists runs")
	rollingFlag   = flag.Bool("proxy.rolling", false,
		"TestNothingRelists kills both API servers and both proxies in turn, not one of each, and then restarts both API servers gracefully")
	writesFlag = flag.Int("proxy.writes", 20, "how many writes a second TestNothingRelists makes")
)

// watchClient is a client that follows config maps: an informer in this process, or a program.
type watchClient interface {
	name() string
	hasSynced() bool
	// has reports whether the client has an object at a revision or a later one.
	has(keepwatch.Key, keepwatch.Revision) bool
	received() int // events after the initial state
	lists() int    // streaming lists, too
	watches() int
	// judge returns what the client has received that differs from the writes after a revision, and from the state at the
	// end, and what it has listed more than once.
	judge(writes check.History, from keepwatch.Revision) []string
}

// auditPolicy records lists and watches: who sent them, and how they ended.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [list, watch]}
- {level: None}
`

// pair is two kube-apiservers on one etcd behind a balancer, two proxies in front of that, and a balancer in front of
// the proxies.
type pair struct {
	*testing.T
	etcd    *clientv3.Client
	servers []*peer.Server
	behind  *balancer // of the servers
	proxies []*peer.Server
	front   *balancer // of the proxies
	writes  history.Reader
	audits  []string // the audit logs of the servers
	counted upstreamLists
}

// upstreamLists are the lists of all objects that the API servers' own metrics count, over all lives of the servers.
type upstreamLists struct{ lists, streams int }

func newPair(t *testing.T) *pair {
	p := &pair{T: t, writes: history.Reader{Prefix: "/registry/configmaps/"}}
	etcd := peer.StartEtcd(t)
	var err error
	if p.etcd, err = etcd.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.etcd.Close() })
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := func() []string {
		log := filepath.Join(t.TempDir(), "audit.log")
		p.audits = append(p.audits, log)
		// A server waits as long as a request may take for watches to end.
		return []string{"--audit-policy-file", policy, "--audit-log-path", log, "--request-timeout", "10s"}
	}
	first := peer.KubernetesOn(t, etcd, flags()...)
	p.servers = []*peer.Server{first, peer.ReplicaOf(t, first, flags()...)}
	p.behind = newBalancer(t, p.servers[0].Config().Host, p.servers[1].Config().Host)
	balanced := first.At(t, p.behind.url)
	for range 2 {
		p.proxies = append(p.proxies, peer.Proxy(t, balanced, "--state", t.TempDir()))
	}
	p.front = newBalancer(t, p.proxies[0].Config().Host, p.proxies[1].Config().Host)
	return p
}

// clients returns a configuration of clients of both proxies.
func (p *pair) clients() *rest.Config {
	config := rest.AnonymousClientConfig(p.servers[0].Config())
	config.Host, config.BearerToken = p.front.url, p.servers[0].Config().BearerToken
	config.CAData, config.Insecure = nil, true // each proxy has an authority of its own
	return config
}

// remember reads etcd's history so far, and returns its newest revision.
func (p *pair) remember() keepwatch.Revision {
	p.Helper()
	now, err := p.etcd.Get(p.Context(), "any", clientv3.WithCountOnly())
	if err == nil {
		err = p.writes.ReadTo(p.Context(), p.etcd, keepwatch.Revision(now.Header.Revision))
	}
	if err != nil {
		p.Fatal(err)
	}
	return keepwatch.Revision(now.Header.Revision)
}

// compact removes etcd's history so far.
func (p *pair) compact() {
	p.Helper()
	if _, err := p.etcd.Compact(p.Context(), int64(p.remember()), clientv3.WithCompactPhysical()); err != nil {
		p.Fatal(err)
	}
}

// count adds the lists that a server has counted since its start.
func (p *pair) count(server int) {
	p.Helper()
	m, err := p.servers[server].Metrics(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	whole := peer.Labels{"resource": "configmaps", "scope": "cluster"}
	p.counted.streams += int(m.Sum("apiserver_watch_list_duration_seconds", whole))
	whole["verb"] = "LIST"
	p.counted.lists += int(m.Sum("apiserver_request_total", whole))
}

// endServer counts the lists of a server, ends it and takes it out of service, while the other one serves.
func (p *pair) endServer(i int, end func() error) {
	p.Helper()
	p.count(i)
	if err := end(); err != nil {
		p.Log(err)
	}
	p.behind.setInService(i, false)
}

// backInService starts a server again. Its watch cache begins at that time.
func (p *pair) backInService(i int) {
	p.Helper()
	if err := p.servers[i].Restart(p.Context()); err != nil {
		p.Fatal(err)
	}
	p.behind.setInService(i, true)
}

// audited is a request in an audit log.
type audited struct {
	AuditID, Stage, RequestURI, Verb, UserAgent string
	ObjectRef                                   struct{ Resource, Subresource string }
	ResponseStatus                              struct{ Code int }
}

// requests returns the lists and watches that the servers have logged, each once.
func (p *pair) requests() (all []audited) {
	p.Helper()
	known := map[string]bool{}
	for _, file := range p.audits {
		log, err := os.Open(file)
		if err != nil {
			p.Fatal(err)
		}
		defer log.Close()
		lines := bufio.NewScanner(log)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var a audited
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				continue // the end of a log whose server was killed
			}
			if !known[a.AuditID] {
				known[a.AuditID] = true
				all = append(all, a)
			}
		}
	}
	return all
}

// purpose says what a request for a whole resource is for.
func (a audited) purpose() string {
	location, err := url.Parse(a.RequestURI)
	if err != nil {
		return "unknown"
	}
	query := location.Query()
	switch {
	case a.Verb == "watch" && strings.Contains(query.Get("fieldSelector"), "keepwatch--"):
		return "stream of nothing"
	case a.Verb == "watch" && query.Get("sendInitialEvents") == "true":
		return "initial stream"
	case a.Verb == "watch":
		return "watch"
	case query.Get("limit") == "1":
		return "question of one object"
	}
	return "list"
}

// forwarded returns how many lists and initial streams of clients the API servers have answered.
func (p *pair) forwarded() (n int) {
	p.Helper()
	for _, a := range p.requests() {
		if a.byClient() && a.ObjectRef.Resource == "configmaps" && (a.purpose() == "list" ||
			a.purpose() == "initial stream") {
			n++
		}
	}
	return n
}

// byClient reports whether a client has sent the request: no proxy, and no API server.
func (a audited) byClient() bool {
	return !strings.HasPrefix(a.UserAgent, "keepwatch") && !strings.HasPrefix(a.UserAgent, "kube-apiserver")
}

// TestNothingRelists follows config maps with informers of client-go, and with clients of other languages, through two
// proxies, while servers and proxies are killed in turn and etcd forgets its history. The clients list once, and so
// does each proxy in each of its lives, by the API servers' metrics and audit logs; no event is lost.
func TestNothingRelists(t *testing.T) {
	p := newPair(t)
	direct, err := kubernetes.NewForConfig(p.servers[0].At(t, p.behind.url).Config())
	if err != nil {
		t.Fatal(err)
	}
	writer := &paintedWriter{client: direct, perSecond: *writesFlag}
	if err := writer.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.cacheBoth()
	begun := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	others := programs(t, p.clients())
	end := sync.OnceFunc(func() {
		for _, o := range others {
			o.end()
		}
		cancel()
		p.front.cut()
		running.Wait()
	})
	defer end()
	var all []watchClient
	for i := range *informersFlag {
		f := newInformer(t, p.clients(), i)
		all = append(all, f)
		running.Go(func() { f.RunWithContext(ctx) })
	}
	for _, o := range others {
		all = append(all, o)
	}
	for _, c := range all {
		await.True(t, c.name()+" has synced", c.hasSynced)
	}
	t.Logf("%d clients have synced after %v", len(all), time.Since(begun))
	from, before := p.remember(), p.forwarded()
	writing, stop := context.WithCancel(ctx)
	written := make(chan struct{})
	go func() { defer close(written); writer.run(writing) }()
	p.story(all, writer)
	stop()
	<-written
	newest := p.arrive(all, direct)
	end()
	p.count(0)
	p.count(1)
	p.judge(all, from, newest)
	if n := p.forwarded(); n != before {
		t.Errorf("the API servers have answered %d lists of clients after the initial ones", n-before)
	}
	t.Logf("%d writes; the story took %v", writer.written.Load(), time.Since(begun))
}

// cacheBoth waits until both proxies answer reads of config maps from memory, in both encodings.
func (p *pair) cacheBoth() {
	p.Helper()
	for _, proxy := range p.proxies {
		for _, encoding := range []string{"json", "protobuf"} {
			config := proxy.Config()
			config.ContentType = "application/" + strings.Replace(encoding, "proto", "vnd.kubernetes.proto", 1)
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				p.Fatal(err)
			}
			await.True(p, "a proxy answers from memory", func() bool {
				if _, err := client.CoreV1().ConfigMaps("").List(p.Context(),
					metav1.ListOptions{ResourceVersion: "0"}); err != nil {
					p.Fatal(err)
				}
				m, err := proxy.Metrics(p.Context())
				return err == nil && m.Sum("keepwatch_proxy_resource_state", peer.Labels{"resource": "configmaps",
					"encoding": encoding, "state": "live"}) == 1
			})
		}
	}
}

// turns returns how many of the two servers and proxies are killed.
func (p *pair) turns() int {
	if *rollingFlag {
		return len(p.servers)
	}
	return 1
}

// story kills everything in turn, and waits in between until all clients have received what was written last.
func (p *pair) story(all []watchClient, writer *paintedWriter) {
	step := func(what string) {
		p.Helper()
		begun := time.Now()
		p.arrive(all, writer.client)
		p.Logf("%s: all clients are up to date again after %v", what, time.Since(begun))
	}
	step("at first")
	for i := range p.turns() {
		p.endServer(i, func() error { p.servers[i].Kill(); return nil })
		step(fmt.Sprintf("API server %d is killed", i))
		p.compact()
		p.backInService(i)
		step(fmt.Sprintf("API server %d is back", i))
	}
	for i := range p.turns() {
		p.proxies[i].Kill()
		p.front.setInService(i, false)
		step(fmt.Sprintf("proxy %d is killed", i))
		p.compact()
		if err := p.proxies[i].Restart(p.Context()); err != nil {
			p.Fatal(err)
		}
		p.front.setInService(i, true)
		step(fmt.Sprintf("proxy %d is back", i))
	}
	for i := range p.servers {
		if !*rollingFlag {
			break
		}
		p.endServer(i, p.servers[i].Stop)
		step(fmt.Sprintf("API server %d has ended", i))
		p.compact()
		p.backInService(i)
		step(fmt.Sprintf("API server %d is back", i))
	}
}

// arrive writes an object that each client selects, and waits until all have it. It returns its revision.
func (p *pair) arrive(all []watchClient, client kubernetes.Interface) keepwatch.Revision {
	p.Helper()
	maps := client.CoreV1().ConfigMaps(relistNamespaces[0])
	marker := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "marker", Labels: map[string]string{"color": "red"}},
		Data:       map[string]string{"at": time.Now().String()},
	}
	var written *corev1.ConfigMap
	await.True(p, "the marker is written", func() (ok bool) {
		var err error
		if written, err = maps.Update(p.Context(), marker, metav1.UpdateOptions{}); err != nil {
			written, err = maps.Create(p.Context(), marker, metav1.CreateOptions{})
		}
		return err == nil
	})
	s := stateOf(written)
	for _, c := range all {
		await.True(p, c.name()+" has the marker", func() bool { return c.has(s.key, s.revision) })
	}
	return s.revision
}

// judge compares what all have received with etcd's history, and counts the lists.
func (p *pair) judge(all []watchClient, from, newest keepwatch.Revision) {
	p.remember()
	writes := slices.DeleteFunc(p.writes.Writes, func(w check.Write) bool { return w.Revision > newest })
	h := check.History{Epochs: []check.Epoch{{Writes: writes, Last: newest}}}
	events, watches, lists := 0, 0, 0
	for _, c := range all {
		events, watches, lists = events+c.received(), watches+c.watches(), lists+c.lists()
		wrong := c.judge(h, from)
		for _, text := range wrong[:min(3, len(wrong))] {
			p.Errorf("%s: %s", c.name(), text)
		}
	}
	p.Logf("%d clients received %d events, listed %d times and opened %d watches", len(all), events, lists, watches)
	purposes := map[string]int{}
	for _, a := range p.requests() {
		who := "proxies"
		if a.byClient() {
			who = "clients"
		} else if strings.HasPrefix(a.UserAgent, "kube-apiserver") {
			continue
		}
		purposes[fmt.Sprintf("%s: %s of %s", who, a.purpose(), a.ObjectRef.Resource)]++
	}
	for purpose, n := range purposes {
		p.Logf("%5d × %s", n, purpose)
	}
	lives := len(p.proxies) + p.turns() // of the proxies, in each of which they read two encodings
	whole := purposes["proxies: list of configmaps"] + purposes["proxies: initial stream of configmaps"]
	questions := purposes["proxies: question of one object of configmaps"]
	p.Logf("by the API servers' metrics: %d LISTs of all config maps, %d initial streams; by their audit logs the proxies read the whole resource %d times", p.counted.lists, p.counted.streams, whole)
	if whole > 2*lives {
		p.Errorf("the proxies have read config maps %d times in %d lives and two encodings", whole, lives)
	}
	if forwarded := purposes["clients: list of configmaps"] +
		purposes["clients: initial stream of configmaps"]; p.counted.lists+p.counted.streams > whole+questions+forwarded {
		p.Errorf("the metrics count %d LISTs and %d streams, the audit logs have %d and %d questions of the proxies, and %d of clients", p.counted.lists, p.counted.streams, whole, questions, forwarded)
	}
}
