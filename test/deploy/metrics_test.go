package deploy

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/test/peer"
)

// checkNames checks the names, units and help of our own metrics in a text of /metrics by Prometheus' linter. Those
// with the names of Kubernetes are as Kubernetes has them.
func checkNames(t *testing.T, what, text string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatalf("%s: %v: %.2000s", what, err, text)
	}
	problems = slices.DeleteFunc(problems, func(p promlint.Problem) bool {
		return !strings.HasPrefix(p.Metric, "keepwatch_")
	})
	for _, p := range problems {
		t.Errorf("%s: %s: %s", what, p.Metric, p.Text)
	}
	if !strings.Contains(text, "\nkeepwatch_") {
		t.Errorf("%s: no metric is ours: %.2000s", what, text)
	}
}

// metricsOf reads /metrics of a server.
func metricsOf(t *testing.T, config *rest.Config) string {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxied{t, config.Host, client}
	code, text := p.do("/metrics", "")
	if code != http.StatusOK {
		t.Fatalf("%s: %d %s", config.Host, code, text)
	}
	return text
}

// Our own metrics have one scheme, in each command that has any; TestDashboards checks those of proxy and sync.
func TestMetricNames(t *testing.T) {
	server := peer.Serve(t)
	checkNames(t, "serve", metricsOf(t, server.Config()))

	dir := t.TempDir()
	to := "sqlite:" + filepath.Join(dir, "state.db")
	command(t, dir, peer.Keepwatch(t), "sync", "namespaces", "--to", to, "--kubeconfig", server.Kubeconfig(),
		"--until-synced")
	kubeconfig := filepath.Join(dir, "history.kubeconfig")
	start(t, "serve", "--history", to, "--listen", "127.0.0.1:0", "--kubeconfig-out", kubeconfig)
	c := &cluster{T: t}
	var config *rest.Config
	c.eventually("the history is served", func() (ok bool) {
		var err error
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
		return err == nil
	})
	if at := strings.Index(config.Host, "/at/"); at > 0 {
		config.Host = config.Host[:at]
	}
	checkNames(t, "serve --history", metricsOf(t, config))
}
