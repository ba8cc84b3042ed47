package clientgo_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// series is one gathered series. Gauges have a value, histograms the other fields.
type series struct {
	names  []string // of labels
	labels map[string]string
	value  float64
	count  uint64
	sum    float64
	bounds []float64
	within map[float64]uint64 // by bound
}

// gathered returns the series of a name.
func gathered(t *testing.T, from prometheus.Gatherer, name string) (all []series) {
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
			h := m.GetHistogram()
			s := series{
				labels: map[string]string{}, value: m.GetGauge().GetValue(),
				count: h.GetSampleCount(), sum: h.GetSampleSum(), within: map[float64]uint64{},
			}
			for _, l := range m.GetLabel() {
				s.names, s.labels[l.GetName()] = append(s.names, l.GetName()), l.GetValue()
			}
			for _, b := range h.GetBucket() {
				s.bounds, s.within[b.GetUpperBound()] = append(s.bounds, b.GetUpperBound()), b.GetCumulativeCount()
			}
			all = append(all, s)
		}
	}
	return all
}

// gatheredOne returns the only series of a name.
func gatheredOne(t *testing.T, from prometheus.Gatherer, name string) series {
	t.Helper()
	all := gathered(t, from, name)
	if len(all) != 1 {
		t.Fatalf("%d series of %s: %v", len(all), name, all)
	}
	return all[0]
}

func gathering(g *clientgo.Group) prometheus.Gatherer {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g)
	return registry
}

// Queued counts the changes that the handler that lags most has yet to receive, with the one
// whose call is running.
func TestQueuedItems(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("c"))
	group := clientgo.NewGroup()
	metrics := gathering(group)
	inf := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil)
	step := make(chan struct{})
	blocked := recorder{react: func(string) { <-step }}
	slow := handle(t, inf, &blocked)
	fast := handle(t, inf, &recorder{})
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf, fast)
	want := func(n float64) {
		t.Helper()
		queued := func() float64 { return gatheredOne(t, metrics, "informer_queued_items").value }
		podtest.Eventually(t, func() bool { return queued() == n }, func() string {
			return fmt.Sprintf("%v are queued, not %v", queued(), n)
		})
	}
	want(3)
	step <- struct{}{}
	want(2)
	s.Put(podtest.Pod("d"))
	s.Remove("a")
	want(4)
	for range 2 {
		step <- struct{}{}
	}
	want(2)
	for i := range 2000 { // more than a handler receives one by one
		s.Put(podtest.Pod("d", podtest.Mark(fmt.Sprint(i))))
	}
	podtest.Eventually(t, func() bool { return inf.LastSyncResourceVersion() == "2105" }, inf.LastSyncResourceVersion)
	want(2 + 1)
	if err := inf.RemoveEventHandler(slow); err != nil {
		t.Fatal(err)
	}
	want(0)
	close(step)
}

// The latency counts each call of each handler, also after the handler was removed.
func TestProcessingLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := clientgo.NewGroup(clientgo.Seed(1))
		metrics := gathering(group)
		inf := group.NewSharedIndexInformer(newSource(t, podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("c")), &corev1.Pod{},
			0, nil)
		slow := handle(t, inf, &recorder{react: func(string) { time.Sleep(30 * time.Millisecond) }})
		fast := handle(t, inf, &recorder{react: func(string) { panic("at once") }})
		stop := podtest.Run(t, inf)
		podtest.WaitForSync(t, inf, slow, fast)
		synctest.Wait()
		if err := inf.RemoveEventHandler(slow); err != nil {
			t.Fatal(err)
		}
		took := gatheredOne(t, metrics, "informer_processing_latency_seconds")
		if took.count != 6 || took.sum != 0.09 {
			t.Errorf("%d calls took %v s", took.count, took.sum)
		}
		if w := took.within; w[0.001] != 3 || w[0.025] != 3 || w[0.05] != 6 || w[10] != 6 {
			t.Errorf("%v", w)
		}
		stop()
	})
}
