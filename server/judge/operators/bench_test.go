package operators

import (
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// BenchmarkWorld measures what a plan needs before its operator starts, and after its end.
func BenchmarkWorld(b *testing.B) {
	klog.SetLogger(logr.Discard())
	base, err := newWorld(b.Context(), Options{CRDs: []string{"../../../examples/widgets.yaml"}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		w, err := base.fork()
		if err != nil {
			b.Fatal(err)
		}
		if err := w.close(); err != nil {
			b.Fatal(err)
		}
	}
	if err := base.close(); err != nil {
		b.Fatal(err)
	}
}
