package deploy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/test/peer"
)

// dashboard is what Grafana shows of a data source.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

// selectors returns the metrics that an expression selects, with the labels of which it selects values.
func selectors(t *testing.T, expression string) map[string][]string {
	t.Helper()
	parsed, err := promQL.ParseExpr(strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	found := map[string][]string{}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			found[v.Name] = append(found[v.Name], "")
			for _, m := range v.LabelMatchers {
				if m.Name != model.MetricNameLabel && m.Name != "instance" {
					found[v.Name] = append(found[v.Name], m.Name)
				}
			}
		}
		return nil
	})
	return found
}

// expressions returns all expressions of the alerts and dashboards, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, rule := range alerts(t) {
		all["alert "+name] = rule.Expr
	}
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil || d.UID != strings.TrimSuffix(filepath.Base(file), ".json") || len(d.Panels) == 0 {
			t.Fatalf("%s: %v, %+v", file, err, d)
		}
		for _, p := range d.Panels {
			for i, target := range p.Targets {
				all[fmt.Sprintf("%s: %s, %d", d.Title, p.Title, i)] = target.Expr
			}
		}
		for _, v := range d.Templating.List {
			if inside, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
				metric, _, _ := strings.Cut(inside, ",")
				all[d.Title+": the variable "+v.Name] = metric
			}
		}
	}
	return all
}

// exposed parses metrics, and returns the labels of each.
func exposed(t *testing.T, text string) map[string]map[string]bool {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]bool{}
	for name, family := range families {
		all[name] = map[string]bool{"": true}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				all[name][l.GetName()] = true
			}
		}
	}
	return all
}

// Every metric that an alert or a dashboard names is exposed by a running proxy or sync, with the labels that are selected.
func TestMetricsExist(t *testing.T) {
	c := newCluster(t, peer.Kubernetes(t))
	token := c.server.Config().BearerToken
	serving, err := localhost.NewCertificate()
	c.must(err)
	dir := t.TempDir()
	p := startProxy(t, c.server.Kubeconfig(), serving.Authority, []string{"--tls-cert-file", writeFile(t, dir, "tls.crt", serving.Cert), "--tls-private-key-file", writeFile(t, dir, "tls.key", serving.Key)})
	c.eventually("the proxy is ready", func() bool { return p.get("/readyz", "") == http.StatusOK })
	all := map[string]map[string]bool{}
	c.eventually("the proxy has answered from memory", func() bool {
		p.get("/api/v1/configmaps?resourceVersion=0", token)
		all = exposed(t, p.body("/metrics", token))
		return all["keepwatch_readpath_answered_total"] != nil && all["keepwatch_proxy_forwarded_total"] != nil
	})
	for name, labels := range c.syncMetrics() {
		if all[name] == nil {
			all[name] = labels
		}
	}
	for where, expression := range expressions(t) {
		for name, labels := range selectors(t, expression) {
			for _, label := range labels {
				if !all[name][label] {
					t.Errorf("%s: the metric %s with the label %q does not exist", where, name, label)
				}
			}
		}
	}
}

// syncMetrics returns the metrics of a sync that has stored everything.
func (c *cluster) syncMetrics() map[string]map[string]bool {
	c.Helper()
	port, err := localhost.FreePort()
	c.must(err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	start(c.T, "sync", "configmaps,namespaces", "-A", "--kubeconfig", c.server.Kubeconfig(), "--to", "sqlite:"+filepath.Join(c.TempDir(), "state.db"), "--metrics-bind-address", address)
	sync := &proxied{c.T, "http://" + address, http.DefaultClient}
	c.eventually("the sync is ready", func() bool { return sync.get("/readyz", "") == http.StatusOK })
	return exposed(c.T, sync.body("/metrics", ""))
}
