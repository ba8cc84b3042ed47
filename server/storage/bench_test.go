package storage_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
	"github.com/keepwatch/keepwatch/store"
)

// BenchmarkStart starts a storage on an etcd with objects. It reports the time until it is ready, how much heap it
// has added then, and how large the objects are.
func BenchmarkStart(b *testing.B) {
	b.Run("pods=50000", func(b *testing.B) {
		benchmarkStart(b, 50_000, corePods{}, func(i int) []byte {
			return must(apiruntime.Encode(corePods{}.codec(), fleet.Pod(i)))(b)
		})
	})
	b.Run("small=200000", func(b *testing.B) {
		benchmarkStart(b, 200_000, corePods{}, func(i int) []byte {
			pod := fleet.Pod(i)
			fleet.Shrink(pod)
			return must(apiruntime.Encode(corePods{}.codec(), pod))(b)
		})
	})
	b.Run("custom=10000", func(b *testing.B) {
		benchmarkStart(b, 10_000, widgets{}, func(i int) []byte {
			pod := fleet.Pod(i)
			pod.APIVersion, pod.Kind = "example.com/v1", "Widget"
			return must(json.Marshal(pod))(b)
		})
	})
}

func benchmarkStart(b *testing.B, n int, of stored, value func(i int) []byte) {
	client := runEtcd(b)
	bytes := 0
	for i := range n {
		v := value(i)
		bytes += len(v)
		if _, err := client.Put(b.Context(), fmt.Sprintf("/registry/pods/team-%03d/web-%05d", i/1000, i),
			string(v)); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := client.Compact(b.Context(), revisionOf(b, client)); err != nil {
		b.Fatal(err)
	}
	var elapsed time.Duration
	var added int64
	for b.Loop() {
		before := heap()
		s := open(b, client, of, store.Options{})
		begin := time.Now()
		stop := s.Start(func(err error) { b.Error(err) })
		for s.ReadinessCheck() != nil { // this time is measured
			<-time.After(time.Millisecond)
		}
		elapsed += time.Since(begin)
		added += heap() - before
		stop()
		runtime.KeepAlive(s)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(elapsed.Seconds()/float64(b.N), "s/start")
	b.ReportMetric(float64(added)/float64(b.N*n), "heap-B/object")
	b.ReportMetric(float64(bytes)/float64(n), "etcd-B/object")
}

func revisionOf(t testing.TB, client *kubernetes.Client) int64 {
	return must(client.KV.Get(t.Context(), "/"))(t).Header.Revision
}

// heap returns the heap in use.
func heap() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
