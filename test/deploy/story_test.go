package deploy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/teststorage"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/test/peer"
)

// interval is the time between two scrapes, as Prometheus would record it. The story does not wait for it.
const interval = 15 * time.Second

// epoch is the time of the first scrape.
var epoch = time.Unix(1_800_000_000, 0)

// story is a proxy and a sync of one API server, whose metrics are scraped.
type story struct {
	*cluster
	proxy, sync *proxied
	receiver    atomic.Int32 // how the receiver of the sink http answers
	storage     *teststorage.TestStorage
	now         time.Time
}

func newStory(t *testing.T) *story {
	s := &story{cluster: newCluster(t, peer.Kubernetes(t)), storage: teststorage.New(t), now: epoch}
	s.receiver.Store(http.StatusOK)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if _, err := io.Copy(io.Discard, q.Body); err != nil {
			return
		}
		w.WriteHeader(int(s.receiver.Load()))
	}))
	t.Cleanup(receiver.Close)
	serving, err := localhost.NewCertificate()
	s.must(err)
	dir := t.TempDir()
	s.proxy = startProxy(t, s.server.Kubeconfig(), serving.Authority, []string{
		"--tls-cert-file", writeFile(t, dir, "tls.crt", serving.Cert),
		"--tls-private-key-file", writeFile(t, dir, "tls.key", serving.Key),
	})
	port, err := localhost.FreePort()
	s.must(err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	file := writeFile(t, dir, "sync.yaml",
		fmt.Appendf(nil, "resources: [{resource: configmaps}, {resource: namespaces}]\n"+
			"sinks: [{to: 'sqlite:%[1]s/state.db'}, {to: '%[2]s', state: '%[1]s/state'}]\n", dir, receiver.URL))
	start(t, "sync", "--filename", file, "--kubeconfig", s.server.Kubeconfig(), "--metrics-bind-address", address)
	s.sync = &proxied{t, "http://" + address, http.DefaultClient}
	return s
}

// tell runs the story: objects change; a receiver is down, and later refuses one; the API server is down, and has lost
// its history when it comes back.
func (s *story) tell() {
	s.Helper()
	token := s.server.Config().BearerToken
	const maps = "/api/v1/configmaps?resourceVersion=0"
	s.eventually("the proxy is ready", func() bool { return s.proxy.get("/readyz", "") == http.StatusOK })
	s.eventually("the sync is ready", func() bool { return s.sync.get("/readyz", "") == http.StatusOK })
	s.eventually("the proxy answers from memory", func() bool {
		s.proxy.get("/apis", token) // is forwarded
		s.proxy.get(maps, token)
		return strings.Contains(s.proxy.body("/metrics", token), `keepwatch_readpath_answered_total{verb="list"}`)
	})
	watch, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.proxy.url+"/api/v1/configmaps?watch=1", nil)
	s.must(err)
	watch.Header.Set("Authorization", "Bearer "+token)
	open, err := s.proxy.client.Do(watch)
	s.must(err)
	defer open.Body.Close()
	s.scrape(4)

	s.receiver.Store(http.StatusServiceUnavailable)
	for i := range 20 {
		s.write(fmt.Sprintf("m-%d", i))
		s.proxy.get(maps, token)
		s.proxy.get("/apis", token)
	}
	s.until("the receiver is asked again", `keepwatch_sync_retries_total{sink="http"} [1-9]`)
	s.scrape(4)
	s.receiver.Store(http.StatusUnprocessableEntity)
	s.until("an event is refused", `keepwatch_sync_dead_letters_total{sink="http"} [1-9]`)
	s.receiver.Store(http.StatusOK)
	s.write("last")
	s.until("the changes are stored", `keepwatch_sync_lag_revisions{.*resource="configmaps",sink="http"} 0`)
	s.scrape(4)

	s.server.Kill()
	s.compactEverything()
	s.must(s.server.Restart(s.Context()))
	s.write("after")
	s.until("the gap is declared", `keepwatch_sync_gaps_total{.*resource="configmaps",sink="sqlite"} [1-9]`)
	s.eventually("the proxy lists again", func() bool {
		return strings.Contains(s.proxy.body("/metrics", token), `reason="expired"`)
	})
	s.scrape(8)
}

func (s *story) write(name string) {
	s.Helper()
	_, err := s.client.CoreV1().ConfigMaps("default").Create(s.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": strings.Repeat("x", 1000)},
	}, metav1.CreateOptions{})
	s.must(err)
}

// compactEverything removes the history of etcd, after changes that nobody has received.
func (s *story) compactEverything() {
	s.Helper()
	etcd, err := s.server.Etcd().Client()
	s.must(err)
	defer etcd.Close()
	for range 10 {
		_, err := etcd.Put(s.Context(), "/registry/other", "x")
		s.must(err)
	}
	_, err = s.server.Compact(s.Context())
	s.must(err)
}

// until waits until the sync exposes a line.
func (s *story) until(what, line string) {
	s.Helper()
	pattern := regexp.MustCompile("(?m)^" + line)
	s.eventually(what, func() bool { return pattern.MatchString(s.sync.body("/metrics", "")) })
}

// scrape stores the metrics of both programs n times.
func (s *story) scrape(n int) {
	s.Helper()
	for range n {
		s.now = s.now.Add(interval)
		s.store("proxy:1", s.proxy.body("/metrics", s.server.Config().BearerToken))
		s.store("sync:1", s.sync.body("/metrics", ""))
	}
}

func (s *story) store(instance, text string) {
	s.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		s.Fatalf("the metrics of %s: %v: %.2000s", instance, err, text)
	}
	var all []*dto.MetricFamily
	for _, family := range families {
		all = append(all, family)
	}
	at := expfmt.DecodeOptions{Timestamp: model.TimeFromUnixNano(s.now.UnixNano())}
	samples, err := expfmt.ExtractSamples(&at, all...)
	s.must(err)
	to := s.storage.Appender(s.Context())
	for _, sample := range samples {
		named := labels.NewBuilder(labels.EmptyLabels())
		for name, value := range sample.Metric {
			named.Set(string(name), string(value))
		}
		named.Set("instance", instance).Set("job", "keepwatch")
		_, err := to.Append(0, named.Labels(), int64(sample.Timestamp), float64(sample.Value))
		s.must(err)
	}
	s.must(to.Commit())
}

// query evaluates an expression at each scrape.
func (s *story) query(engine *promql.Engine, expr string) promql.Matrix {
	s.Helper()
	q, err := engine.NewRangeQuery(s.Context(), s.storage, nil, expr, epoch, s.now, interval)
	if err != nil {
		s.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result := q.Exec(s.Context())
	found, err := result.Matrix()
	if err != nil {
		s.Fatalf("%s: %v", expr, err)
	}
	series := promql.Matrix{} // a copy: Close takes the points
	for _, f := range found {
		series = append(series, promql.Series{Metric: f.Metric, Floats: slices.Clone(f.Floats)})
	}
	return series
}

// missing returns the metrics that an expression selects and nobody exposes, and the labels by which it selects them
// and which they do not have.
func (s *story) missing(expr parser.Expr) (all []string) {
	s.Helper()
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			known := s.labels(v.Name)
			if len(known) == 0 {
				all = append(all, v.Name)
			}
			for _, m := range v.LabelMatchers {
				if !known[m.Name] {
					all = append(all, v.Name+"{"+m.Name+"}")
				}
			}
		}
		return nil
	})
	return all
}

// labels returns the labels of a metric.
func (s *story) labels(metric string) map[string]bool {
	s.Helper()
	found := map[string]bool{}
	querier, err := s.storage.Querier(epoch.UnixMilli(), s.now.UnixMilli())
	s.must(err)
	defer querier.Close()
	set := querier.Select(s.Context(), false, nil, labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, metric))
	for set.Next() {
		set.At().Labels().Range(func(l labels.Label) { found[l.Name] = true })
	}
	s.must(set.Err())
	return found
}
