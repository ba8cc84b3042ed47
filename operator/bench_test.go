package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/operator"
)

// BenchmarkBesideBadObjects measures how long 490 objects take from their creation to
// the last patch, alone and beside 5 that the server always rejects and 5 whose
// handler panics. Nothing passes or fails by it.
func BenchmarkBesideBadObjects(b *testing.B) {
	for _, bad := range []int{0, 5} {
		b.Run(fmt.Sprintf("bad=%d", 2*bad), func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				all = append(all, latencies(b, 490, bad)...)
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Milliseconds()), "p50-ms")
			b.ReportMetric(float64(all[len(all)*99/100].Milliseconds()), "p99-ms")
		})
	}
}

func latencies(b *testing.B, good, bad int) []time.Duration {
	b.Helper()
	namespace := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	cfg, sent := counting()
	op := operator.New("widgets.example.com", operator.Namespaces(namespace))
	operator.OnCreate(op, func(_ context.Context, r *request) error {
		switch r.Object.Spec.Color {
		case "rejected":
			r.Patch.Set("spec.size", 9999)
		case "panic":
			panic("at the disco")
		}
		r.Patch.Status("phase", "Ready")
		return nil
	})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- op.Run(ctx, cfg) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}
	namespaces := widgets
	namespaces.Group, namespaces.Resource = "", "namespaces"
	if _, err := objects.Resource(namespaces).Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	for i := range bad {
		create(b, namespace, fmt.Sprintf("rejected-%d", i), "rejected")
		create(b, namespace, fmt.Sprintf("panic-%d", i), "panic")
	}
	created := make([]time.Time, good)
	var creating sync.WaitGroup
	for part := range 10 {
		creating.Go(func() {
			for i := part; i < good; i += 10 {
				created[i] = time.Now()
				create(b, namespace, fmt.Sprintf("fine-%d", i), "fine")
			}
		})
	}
	creating.Wait()
	took := make([]time.Duration, good)
	for i := range good {
		name := fmt.Sprintf("fine-%d", i)
		for end := time.Now().Add(deadline); ; <-time.After(5 * time.Millisecond) {
			// The status, then the note that it is handled.
			if done := sent.of(name, http.StatusOK); len(done) >= 2 {
				took[i] = done[1].Sub(created[i])
				break
			}
			if time.Now().After(end) {
				b.Fatalf("%s is not handled", name)
			}
		}
	}
	return took
}

func create(b *testing.B, namespace, name, color string) {
	w := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"size": int64(1), "color": color},
	}}
	if _, err := objects.Resource(widgets).Namespace(namespace).Create(b.Context(), w, metav1.CreateOptions{}); err != nil {
		b.Error(err)
	}
}
