package watchcache_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
)

// BenchmarkSelectiveLists lists by labels that 0.1 % and 10 % of 50,000 and of 200,000 objects of 1 KB have, by an
// index and by a scan in turn. It reports the median processor time of each and of their ratios, and the memory of a
// posting.
func BenchmarkSelectiveLists(b *testing.B) {
	for _, n := range []int{50_000, 200_000} {
		w := newIndexedWorld(b)
		var newest keepwatch.Revision
		text := strings.Repeat("x", 900)
		for i := range n {
			key := keepwatch.Key{Namespace: fmt.Sprintf("namespace-%02d", i%100), Name: fmt.Sprintf("object-%06d", i)}
			labels := fmt.Sprintf(`{"percent":"%d","permille":"%d"}`, i/7%10, i/7%1000)
			newest = w.source.writeAt(key, fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","text":%q,`+
				`"metadata":{"namespace":%q,"name":%q,"uid":"u","labels":%s}}`, text, key.Namespace, key.Name, labels))
		}
		if err := w.WaitForRevision(b.Context(), newest); err != nil {
			b.Fatal(err)
		}
		before := heap()
		began := cpuTime()
		w.AddTermIndex("label:percent", time.Now())
		w.AddTermIndex("label:permille", time.Now())
		build, bytes := (cpuTime()-began)/2, (heap()-before)/uint64(2*n)
		for _, selector := range []string{"permille=7", "percent=7"} {
			b.Run(fmt.Sprintf("objects=%d/%s", n, selector), func(b *testing.B) {
				o := selecting(selector, "")
				cost := func(list func() (any, error)) (cpu time.Duration) {
					const times = 5
					began := cpuTime()
					for range times {
						if _, err := list(); err != nil {
							b.Fatal(err)
						}
					}
					return (cpuTime() - began) / times
				}
				var index, scan, ratio []float64
				for b.Loop() {
					x := cost(func() (any, error) { return w.List(b.Context(), "/widgets/", o) })
					y := cost(func() (any, error) { return w.ScanList(b.Context(), "/widgets/", o) })
					index, scan, ratio = append(index, float64(x)), append(scan, float64(y)), append(ratio, float64(x)/float64(y))
				}
				b.ReportMetric(median(index), "cpu-ns/list")
				b.ReportMetric(median(scan), "cpu-ns/scan")
				b.ReportMetric(median(ratio), "ratio")
				b.ReportMetric(float64(build), "cpu-ns/index")
				b.ReportMetric(float64(bytes), "index-bytes/object")
			})
		}
		w.cancel()
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
