// Package servemetrics serves a server's metrics as k8s.io/apiserver does.
package servemetrics

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
)

// Install serves two registries as one at /metrics: that of the Kubernetes libraries, which all servers of
// a process share, and the server's own. A DELETE resets both, as in k8s.io/apiserver.
func Install(to *mux.PathRecorderMux, own metrics.KubeRegistry) {
	routes.MetricsWithReset{}.Install(mux.NewPathRecorderMux("metrics")) // registers the libraries' metrics
	slis.SLIMetricsWithReset{}.Install(to)
	show := metrics.HandlerFor(prometheus.Gatherers{legacyregistry.DefaultGatherer, own}, metrics.HandlerOpts{})
	to.HandleFunc("/metrics", func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodDelete {
			show.ServeHTTP(w, q)
			return
		}
		legacyregistry.Reset()
		own.Reset()
		_, _ = io.WriteString(w, "metrics reset\n")
	})
}
