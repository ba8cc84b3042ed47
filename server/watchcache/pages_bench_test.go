package watchcache_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/store"
)

// BenchmarkPages lists everything in pages of 500, of collections of 5,000, 20,000 and 80,000 objects. A page
// should cost the same in all.
func BenchmarkPages(b *testing.B) {
	for _, n := range []int{5_000, 20_000, 80_000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			r := newRig(b, store.Options{})
			for i := range n {
				r.source.put(fmt.Sprintf("o%06d", i), "x")
			}
			r.eventually("the cache has all objects", func() bool { return r.Snapshot().Len() == n })
			pages, began := 0, cpuTime()
			for b.Loop() {
				page := everything
				page.Predicate.Limit, page.Recursive = 500, true
				for {
					result, err := r.List(b.Context(), "/widgets/", page)
					if err != nil {
						b.Fatal(err)
					}
					pages++
					if page.Predicate.Continue = result.Continue; page.Predicate.Continue == "" {
						break
					}
				}
			}
			b.ReportMetric(float64(cpuTime()-began)/float64(pages), "cpu-ns/page")
		})
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
