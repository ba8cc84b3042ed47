package peer

import (
	"context"
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are the values of a server's /metrics at one time, by metric name.
type Metrics map[string]*dto.MetricFamily

// Labels select the series that have all these values.
type Labels map[string]string

// Metrics reads the server's metrics.
func (s *Server) Metrics(ctx context.Context) (Metrics, error) {
	body, err := s.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return parseMetrics(s.name, body)
}

// Metrics reads etcd's metrics.
func (e Endpoint) Metrics(ctx context.Context) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, string(e)+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return parseMetrics("etcd", response.Body)
}

func parseMetrics(of string, text io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("/metrics of %s: %w", of, err)
	}
	return families, nil
}

// Sum adds up the series of the metric name that labels select: their values,
// or their counts of observations. It is 0 if there are none.
func (m Metrics) Sum(name string, labels Labels) float64 {
	var sum float64
	for _, series := range m[name].GetMetric() {
		if labels.match(series.GetLabel()) {
			sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() +
				series.GetUntyped().GetValue() + float64(series.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// Requests is how many requests of a verb, as metrics spell it (LIST, WATCH,
// GET, POST…), the server has answered for a resource such as pods. A watch
// counts when it ends.
func (m Metrics) Requests(verb, resource string) int {
	return int(m.Sum("apiserver_request_total", Labels{"verb": verb, "resource": resource}))
}

// Refused returns the number of these requests that were answered with 429.
func (m Metrics) Refused(verb, resource string) int {
	return int(m.Sum("apiserver_request_total", Labels{"verb": verb, "resource": resource, "code": "429"}))
}

// Terminated returns the number of watches of a resource that the server ended because their
// clients did not read fast enough. It does so without an error.
func (m Metrics) Terminated(resource string) int {
	return int(m.Sum("apiserver_terminated_watchers_total", Labels{"resource": resource}))
}

func (want Labels) match(labels []*dto.LabelPair) bool {
	found := 0
	for _, l := range labels {
		if value, ok := want[l.GetName()]; ok && value == l.GetValue() {
			found++
		}
	}
	return found == len(want)
}
