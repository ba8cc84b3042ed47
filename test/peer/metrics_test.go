package peer

import (
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func TestSum(t *testing.T) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(`# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",verb="LIST"} 3
apiserver_request_total{code="410",resource="pods",verb="LIST"} 2
apiserver_request_total{code="200",resource="pods",verb="WATCH"} 10
apiserver_request_total{code="200",resource="nodes",verb="LIST"} 20
`))
	if err != nil {
		t.Fatal(err)
	}
	m := Metrics(families)
	if got := m.Requests("LIST", "pods"); got != 5 {
		t.Errorf("%d lists of pods, want 5", got)
	}
	if got := m.Sum("apiserver_request_total", Labels{"code": "200"}); got != 33 {
		t.Errorf("%v requests were answered 200, want 33", got)
	}
	if got := m.Sum("apiserver_request_total", nil); got != 35 {
		t.Errorf("%v requests, want 35", got)
	}
	if got := m.Sum("apiserver_request_total", Labels{"missing": ""}) + m.Sum("missing", nil); got != 0 {
		t.Errorf("what isn't there sums up to %v", got)
	}
}
