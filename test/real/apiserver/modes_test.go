package apiserver

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/differential"
	"github.com/keepwatch/keepwatch/test/peer"
)

// modes are keepwatch-apiserver in both modes on one etcd.
type modes struct {
	*testing.T
	etcd                *peer.EtcdProxy // that of ours
	ours, upstream      *peer.Server
	keepwatch, itsCache *differential.Side
	client              kubernetes.Interface // of ours
}

// TestModes compares what both modes do beside answering reads, and how they answer reads that need a
// feature gate.
func TestModes(t *testing.T) {
	etcd := peer.StartEtcd(t)
	m := &modes{T: t, etcd: peer.ProxyEtcd(t, etcd)}
	flags := []string{
		// A lease of the server's identity is renewed every 10 s: a write between two compared answers.
		"--feature-gates", "APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false,ShardedListAndWatch=true",
		"--etcd-count-metric-poll-period", "1s", // objects are counted at this interval
	}
	m.upstream = peer.KeepwatchAPIServerOn(t, etcd, append(flags, "--reads=upstream")...)
	m.ours = peer.KeepwatchAPIServerOn(t, &m.etcd.EtcdServer, flags...)
	m.keepwatch, m.itsCache = m.side("keepwatch", m.ours), m.side("upstream", m.upstream)
	config := m.ours.Config()
	var err error
	if m.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		run  func(*modes)
	}{
		{"memory of the start", (*modes).startMemory},
		{"sharded lists", (*modes).shardedLists},
		{"bad shards", (*modes).badShards},
		{"sharded watches", (*modes).shardedWatches},
		{"sharded deletion", (*modes).shardedDeletion},
		{"exact lists read nothing", (*modes).exactLists},
		{"consistent lists share a read", (*modes).consistentLists},
		{"seats", (*modes).seats},
		{"names of metrics", (*modes).metricNames},
	} {
		t.Run(step.name, func(t *testing.T) {
			in := *m
			in.T = t
			step.run(&in)
		})
	}
}

func (m *modes) side(name string, server *peer.Server) *differential.Side {
	m.Helper()
	s, err := differential.NewSide(name, server)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(s.Close)
	return s
}

// namespace creates a namespace.
func (m *modes) namespace(name string) {
	m.Helper()
	_, err := m.client.CoreV1().Namespaces().Create(m.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		m.Fatal(err)
	}
}

// create creates a config map with bytes of data.
func (m *modes) create(namespace, name string, data int) *corev1.ConfigMap {
	m.Helper()
	created, err := m.client.CoreV1().ConfigMaps(namespace).Create(m.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"parity": fmt.Sprint(len(name) % 2)}},
		Data:       map[string]string{"text": strings.Repeat("x", data)},
	}, metav1.CreateOptions{})
	if err != nil {
		m.Fatal(err)
	}
	return created
}

// same sends a request to both servers until they answer the same, and returns the answer. They may
// have reached different revisions.
func (m *modes) same(r differential.Request) differential.Answer {
	m.Helper()
	var ours, upstreams differential.Answer
	await.State(m, "both servers answer the same", func() (bool, string) {
		ours, upstreams = m.keepwatch.Ask(m.Context(), r), m.itsCache.Ask(m.Context(), r)
		return ours.Incomplete == "" && upstreams.Incomplete == "" && ours.Status == upstreams.Status &&
				withoutSlash(ours.Body) == withoutSlash(upstreams.Body) &&
				ours.Header.Get("Content-Type") == upstreams.Header.Get("Content-Type"),
			fmt.Sprintf("%s\nkeepwatch: %d %s %s\nupstream:  %d %s %s", r, ours.Status, ours.Incomplete, ours.Body,
				upstreams.Status, upstreams.Incomplete, upstreams.Body)
	})
	return ours
}

// continueToken matches the continue token of a page.
var continueToken = regexp.MustCompile(`"continue":"([^"]+)"`)

// withoutSlash returns a page whose continue token does not begin with a slash. Upstream's tokens of lists
// with selectors do; both servers accept both.
func withoutSlash(body []byte) string {
	return continueToken.ReplaceAllStringFunc(string(body), func(field string) string {
		encoded := continueToken.FindStringSubmatch(field)[1]
		token, err := base64.RawURLEncoding.DecodeString(encoded)
		if err != nil {
			return field
		}
		return strings.Replace(string(token), `"start":"/`, `"start":"`, 1)
	})
}

func request(path string, options url.Values, accept string) differential.Request {
	return differential.Request{Path: path, Options: options, Accept: accept}
}

// metrics reads the metrics of a server.
func (m *modes) metrics(s *peer.Server) peer.Metrics {
	m.Helper()
	all, err := s.Metrics(m.Context())
	if err != nil {
		m.Fatal(err)
	}
	return all
}

// startMemory waits until the server has collected and returned the garbage of its start, when its informers
// and when its watch caches were complete.
func (m *modes) startMemory() {
	const forced = "go_gc_cycles_forced_gc_cycles_total"
	m.eventually("the garbage of the start is returned", func() bool { return m.metrics(m.ours).Sum(forced, nil) >= 2 })
	if n := m.metrics(m.upstream).Sum(forced, nil); n != 0 {
		m.Errorf("upstream's mode has forced %v collections", n)
	}
}

// eventually polls until done.
func (m *modes) eventually(what string, done func() bool) {
	m.Helper()
	await.True(m, what, done)
}

// clientOf returns an HTTP client of a server for a user; without one it has all permissions.
func (m *modes) clientOf(s *peer.Server, user string) (*http.Client, string) {
	m.Helper()
	config := s.Config()
	config.Impersonate.UserName = user
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(client.CloseIdleConnections)
	return client, config.Host
}
