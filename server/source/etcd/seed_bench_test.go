package etcd_test

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/store"
)

// BenchmarkSeed reads 50,000 objects of 6 KB, as a stream and by pages. etcd runs in the same process.
func BenchmarkSeed(b *testing.B) {
	const n, perWrite = 50_000, 100
	w := newFixture(b, etcd.Options{})
	value := strings.Repeat("x", 6000)
	for begin := 0; begin < n; begin += perWrite {
		var puts []clientv3.Op
		for i := range perWrite {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%sns/%05d", w.prefix, begin+i), value))
		}
		must(w.Txn(b.Context()).Then(puts...).Commit())(b)
	}
	for name, opts := range map[string]etcd.Options{"stream": {}, "pages": {PagesOnly: true}} {
		opts.Prefix = w.prefix
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				cache := store.New(store.Options{})
				must(newSource(b, w.Client, opts).Seed(b.Context(), cache, 0))(b)
				if got := cache.Snapshot().Len(); got != n {
					b.Fatalf("%d objects", got)
				}
			}
		})
	}
}
