package readpath

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// BenchmarkShardedList lists a shard of 50,000 pods whose encodings are cached. It reports the CPU time of
// a list, without HTTP, and of finding the shard's objects alone.
func BenchmarkShardedList(b *testing.B) {
	featuregatetesting.SetFeatureGateDuringTest(b, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, true)
	r := newRig(b, pods, options{db: fleetOf(b, 50_000), budget: NewBudget(2 << 30)})
	<-r.storage.Cache().Warmed()
	for _, shards := range []uint64{1, 4, 64} {
		end := fmt.Sprintf("0x%016x", ^uint64(0)/shards)
		for _, encoding := range []string{"", "gzip"} {
			path := r.path("") + "?" + ofShard(fmt.Sprintf("shardRange(object.metadata.uid, '0x0000000000000000', '%s')", end))
			b.Run(fmt.Sprintf("1 of %d/%s", shards, encoding), func(b *testing.B) {
				list := func() int {
					q := httptest.NewRequest(http.MethodGet, path, nil)
					q.Header = accept(runtime.ContentTypeJSON, "Accept-Encoding", encoding)
					w := &countingWriter{header: http.Header{}}
					r.handler.ServeHTTP(w, r.withInfo(q))
					return w.bytes
				}
				bytes := list()
				began := cpuTime(b)
				for b.Loop() {
					list()
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/float64(b.N), "cpu-µs/list")
				b.ReportMetric(float64(bytes), "bytes")
			})
		}
		b.Run(fmt.Sprintf("1 of %d/search", shards), func(b *testing.B) {
			q := httptest.NewRequest(http.MethodGet, r.path("")+"?"+
				ofShard(fmt.Sprintf("shardRange(object.metadata.uid, '0x0000000000000000', '%s')", end)), nil)
			q = r.withInfo(q)
			q.Header = accept(runtime.ContentTypeJSON)
			info, _ := request.RequestInfoFrom(q.Context())
			parsed, why := r.reader.resource.parse(q, info)
			if why != "" {
				b.Fatal(why)
			}
			began := cpuTime(b)
			for b.Loop() {
				must(r.storage.Cache().List(b.Context(), parsed.key, parsed.options))(b)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/float64(b.N), "cpu-µs/list")
		})
	}
	if r.delegated.Load() > 0 {
		b.Errorf("%d lists were delegated", r.delegated.Load())
	}
}
