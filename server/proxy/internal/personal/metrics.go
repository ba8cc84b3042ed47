package personal

import (
	"k8s.io/component-base/metrics"
)

// counts are the counters of all views.
type counts struct {
	reviews, replaced *metrics.Counter
}

func newCounts(registry metrics.KubeRegistry, v *Views) counts {
	c := counts{
		reviews: metrics.NewCounter(&metrics.CounterOpts{
			Name: "keepwatch_proxy_personal_reviews_total", StabilityLevel: metrics.ALPHA,
			Help: "Decisions about namespaces that personal views needed. Some of them were known.",
		}),
		replaced: metrics.NewCounter(&metrics.CounterOpts{
			Name: "keepwatch_proxy_personal_changes_total", StabilityLevel: metrics.ALPHA,
			Help: "Changes of the namespaces of personal views.",
		}),
	}
	registry.MustRegister(c.reviews, c.replaced)
	gauge := func(name, help string, value func() float64) {
		registry.CustomMustRegister(&gaugeFunc{about: metrics.NewDesc(name, help, nil, nil, metrics.ALPHA, ""), value: value})
	}
	gauge("keepwatch_proxy_personal_views", "Personal views that are known: of a user, a resource and a verb.",
		func() float64 { return float64(v.len()) })
	gauge("keepwatch_proxy_personal_reviews_in_flight", "Decisions about namespaces that are being made.", func() float64 {
		return float64(len(v.reviewing))
	})
	return c
}

// gaugeFunc is a gauge whose value is computed at each scrape.
type gaugeFunc struct {
	metrics.BaseStableCollector
	about *metrics.Desc
	value func() float64
}

// DescribeWithStability implements metrics.StableCollector.
func (g *gaugeFunc) DescribeWithStability(to chan<- *metrics.Desc) { to <- g.about }

// CollectWithStability implements metrics.StableCollector.
func (g *gaugeFunc) CollectWithStability(to chan<- metrics.Metric) {
	to <- metrics.NewLazyConstMetric(g.about, metrics.GaugeValue, g.value())
}
