package informer_test

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/fifo" // exports the metrics of client-go's informers

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// labelled is the names of the labels and the bounds of the buckets of a series.
type labelled struct {
	labels []string
	bounds []float64
}

// gathered returns the series of a name.
func gathered(t *testing.T, from prometheus.Gatherer, name string) (all []labelled) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var s labelled
			for _, l := range m.GetLabel() {
				s.labels = append(s.labels, l.GetName())
			}
			for _, b := range m.GetHistogram().GetBucket() {
				s.bounds = append(s.bounds, b.GetUpperBound())
			}
			all = append(all, s)
		}
	}
	return all
}

// The metrics can be gathered together with client-go's: they have the same names, labels,
// buckets and help.
func TestCompareMetrics(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"))
	client := kubernetes.NewForConfigOrDie(s.Config())
	pods := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "", fields.Everything())
	name, err := cache.NewInformerName("beside")
	if err != nil {
		t.Fatal(err)
	}
	defer name.Release()
	clientGo := cache.NewSharedIndexInformerWithOptions(pods, &corev1.Pod{}, cache.SharedIndexInformerOptions{
		Identifier: name.WithResource(corev1.SchemeGroupVersion.WithResource("pods")),
	})
	group := clientgo.NewGroup()
	keepwatch := group.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, nil)
	for _, inf := range []cache.SharedIndexInformer{clientGo, keepwatch} {
		registration, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{})
		if err != nil {
			t.Fatal(err)
		}
		podtest.Run(t, inf)
		podtest.WaitForSync(t, inf, registration)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(group)
	both := prometheus.Gatherers{legacyregistry.DefaultGatherer, registry}
	for _, name := range []string{"informer_queued_items", "informer_processing_latency_seconds",
		"informer_store_resource_version"} {
		all := gathered(t, both, name)
		if len(all) != 2 {
			t.Errorf("%s: %v", name, all)
			continue
		}
		if !slices.Equal(all[0].labels, all[1].labels) || !slices.Equal(all[0].bounds, all[1].bounds) {
			t.Errorf("%s: %v and %v", name, all[0], all[1])
		}
	}
}
