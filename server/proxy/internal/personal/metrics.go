package personal

import (
	"k8s.io/component-base/metrics"
)

// counts are the counters of all views.
type counts struct {
	reviews, replaced, refused *metrics.Counter
	forgotten                  *metrics.CounterVec
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
		refused: metrics.NewCounter(&metrics.CounterOpts{
			Name: "keepwatch_proxy_personal_refused_total", StabilityLevel: metrics.ALPHA,
			Help: "Lists and watches that were answered 429, or ended with it, because too many personal views are in use, and their user has its share.",
		}),
		forgotten: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "keepwatch_proxy_personal_forgotten_total", StabilityLevel: metrics.ALPHA,
			Help: "Personal views that were forgotten for others, by reason: unused, or share if their watches have ended because their user had more views than others.",
		}, []string{"reason"}),
	}
	registry.MustRegister(c.reviews, c.replaced, c.refused, c.forgotten)
	gauge := func(name, help string, value func() float64) {
		registry.CustomMustRegister(&gaugeFunc{about: metrics.NewDesc(name, help, nil, nil, metrics.ALPHA, ""), value: value})
	}
	gauge("keepwatch_proxy_personal_views", "Personal views that are known: of a user, a resource and a verb.",
		func() float64 { return float64(v.len()) })
	gauge("keepwatch_proxy_personal_reviews_in_flight", "Decisions about namespaces that are being made.", func() float64 {
		return float64(v.asking.Load())
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
