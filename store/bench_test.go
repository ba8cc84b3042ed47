package store_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

var million = flag.Bool("million", false, "benchmark with a million objects, too")

// The benchmarks run the store and client-go's indexer side by side on the same
// objects. Names end in /keepwatch and /client-go.

// payload is an object that both sides take: 1 KiB beyond its metadata.
type payload struct {
	metav1.ObjectMeta
	revision keepwatch.Revision
	body     []byte
}

func (p *payload) Key() keepwatch.Key {
	return keepwatch.Key{Namespace: p.Namespace, Name: p.Name}
}
func (p *payload) UID() keepwatch.UID           { return keepwatch.UID(p.ObjectMeta.UID) }
func (p *payload) Revision() keepwatch.Revision { return p.revision }

const namespaces = 100

func newPayload(i int, r keepwatch.Revision) *payload {
	return &payload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "namespace-" + strconv.Itoa(i%namespaces),
			Name:            fmt.Sprintf("deployment-%d-%08x", i%50, i*2654435761),
			UID:             types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i)),
			ResourceVersion: r.String(),
		},
		revision: r,
		body:     make([]byte, 1024),
	}
}

func payloads(n int) []keepwatch.Object {
	objects := make([]keepwatch.Object, n)
	for i := range objects {
		objects[i] = newPayload(i, keepwatch.Revision(i+1))
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	return objects
}

func sizes(b *testing.B, run func(b *testing.B, n int)) {
	all := []int{10_000, 100_000}
	if *million {
		all = append(all, 1_000_000)
	}
	for _, n := range all {
		b.Run(strconv.Itoa(n), func(b *testing.B) { run(b, n) })
	}
}

func fill(tb testing.TB, objects []keepwatch.Object) *store.Store {
	s := store.New(store.Options{WindowBytes: 4 << 20})
	r, err := s.Replace(context.Background(), keepwatch.Relist{})
	if err != nil {
		tb.Fatal(err)
	}
	for len(objects) > 0 {
		n := min(500, len(objects))
		if err := r.Put(context.Background(), objects[:n]); err != nil {
			tb.Fatal(err)
		}
		objects = objects[n:]
	}
	if err := r.Commit(context.Background(), 10_000_000); err != nil {
		tb.Fatal(err)
	}
	return s
}

func fillIndexer(tb testing.TB, objects []keepwatch.Object) cache.Indexer {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, o := range objects {
		if err := indexer.Add(o); err != nil {
			tb.Fatal(err)
		}
	}
	return indexer
}

func BenchmarkUpdate(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		objects := payloads(n)
		b.Run("keepwatch", func(b *testing.B) {
			s := fill(b, objects)
			updates, at := updates(objects, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			for _, o := range updates {
				_, err := s.Apply(context.Background(), keepwatch.Batch{
					From: at, To: o.Revision(),
					Changes: []keepwatch.Change{{Type: keepwatch.Modified, Revision: o.Revision(), Object: o}},
				})
				if err != nil {
					b.Fatal(err)
				}
				at = o.Revision()
			}
		})
		b.Run("client-go", func(b *testing.B) {
			indexer := fillIndexer(b, objects)
			updates, _ := updates(objects, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			for _, o := range updates {
				if err := indexer.Update(o); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// updates makes n new states of random objects; the payload is shared with the old.
func updates(objects []keepwatch.Object, n int) ([]keepwatch.Object, keepwatch.Revision) {
	at := keepwatch.Revision(10_000_000)
	random := rand.New(rand.NewPCG(3, 4))
	news := make([]keepwatch.Object, n)
	for i := range news {
		o := *objects[random.IntN(len(objects))].(*payload)
		o.revision = at + keepwatch.Revision(i) + 1
		news[i] = &o
	}
	return news, at
}

func BenchmarkGet(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		objects := payloads(n)
		b.Run("keepwatch", func(b *testing.B) {
			s := fill(b, objects)
			b.ResetTimer()
			for i := range b.N {
				if _, ok := s.Snapshot().Get(objects[i%n].Key()); !ok {
					b.Fatal("not found")
				}
			}
		})
		b.Run("client-go", func(b *testing.B) {
			indexer := fillIndexer(b, objects)
			b.ResetTimer()
			for i := range b.N {
				if _, ok, _ := indexer.Get(objects[i%n]); !ok {
					b.Fatal("not found")
				}
			}
		})
	})
}

func BenchmarkListAll(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		objects := payloads(n)
		b.Run("keepwatch", func(b *testing.B) {
			s := fill(b, objects)
			b.ResetTimer()
			for range b.N {
				seen := 0
				for range s.Snapshot().All() {
					seen++
				}
				if seen != n {
					b.Fatal(seen)
				}
			}
		})
		b.Run("client-go", func(b *testing.B) {
			indexer := fillIndexer(b, objects)
			b.ResetTimer()
			for range b.N {
				seen := 0
				for range indexer.List() {
					seen++
				}
				if seen != n {
					b.Fatal(seen)
				}
			}
		})
	})
}

func BenchmarkListNamespace(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		objects := payloads(n)
		b.Run("keepwatch", func(b *testing.B) {
			s := fill(b, objects)
			b.ResetTimer()
			for range b.N {
				seen := 0
				for range s.Snapshot().Namespace("namespace-7") {
					seen++
				}
				if seen != n/namespaces {
					b.Fatal(seen)
				}
			}
		})
		b.Run("client-go", func(b *testing.B) {
			indexer := fillIndexer(b, objects)
			b.ResetTimer()
			for range b.N {
				list, err := indexer.ByIndex(cache.NamespaceIndex, "namespace-7")
				if err != nil || len(list) != n/namespaces {
					b.Fatal(len(list), err)
				}
			}
		})
	})
}

// BenchmarkSnapshot takes a copy that later updates don't touch. The indexer's
// only one is a list.
func BenchmarkSnapshot(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		objects := payloads(n)
		b.Run("keepwatch", func(b *testing.B) {
			s := fill(b, objects)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if s.Snapshot().Len() != n {
					b.Fatal("short")
				}
			}
		})
		b.Run("client-go", func(b *testing.B) {
			indexer := fillIndexer(b, objects)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if len(indexer.List()) != n {
					b.Fatal("short")
				}
			}
		})
	})
}

// BenchmarkDiff finds what changed between two states when 1 % did. With an
// indexer that is a comparison of two lists by key.
func BenchmarkDiff(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		objects := payloads(n)
		b.Run("keepwatch", func(b *testing.B) {
			s := fill(b, objects)
			before := s.Snapshot()
			news, at := distinct(objects, n/100)
			for _, o := range news {
				_, err := s.Apply(context.Background(), keepwatch.Batch{
					From: at, To: o.Revision(),
					Changes: []keepwatch.Change{{Type: keepwatch.Modified, Revision: o.Revision(), Object: o}},
				})
				if err != nil {
					b.Fatal(err)
				}
				at = o.Revision()
			}
			b.ResetTimer()
			for range b.N {
				if got := before.Diff(s.Snapshot()); len(got) != n/100 {
					b.Fatal(len(got))
				}
			}
		})
		b.Run("client-go", func(b *testing.B) {
			indexer := fillIndexer(b, objects)
			before := map[string]any{}
			for _, o := range indexer.List() {
				key, _ := cache.MetaNamespaceKeyFunc(o)
				before[key] = o
			}
			news, _ := distinct(objects, n/100)
			for _, o := range news {
				if err := indexer.Update(o); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			for range b.N {
				changed := 0
				for _, o := range indexer.List() {
					key, _ := cache.MetaNamespaceKeyFunc(o)
					if before[key] != o {
						changed++
					}
				}
				if changed != n/100 {
					b.Fatal(changed)
				}
			}
		})
	})
}

// distinct makes new states of n different objects.
func distinct(objects []keepwatch.Object, n int) ([]keepwatch.Object, keepwatch.Revision) {
	news := make([]keepwatch.Object, n)
	at := keepwatch.Revision(10_000_000)
	for i := range news {
		o := *objects[i].(*payload)
		o.revision = at + keepwatch.Revision(i) + 1
		news[i] = &o
	}
	return news, at
}

// BenchmarkMemory reports the heap per object beyond the objects themselves, after
// a list in random order and one update of each object.
func BenchmarkMemory(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		objects := payloads(n)
		b.Run("keepwatch", func(b *testing.B) {
			measure(b, n, func() any { return fill(b, objects) })
		})
		b.Run("client-go", func(b *testing.B) {
			measure(b, n, func() any { return fillIndexer(b, objects) })
		})
	})
}

func measure(b *testing.B, n int, build func() any) {
	for range b.N {
		before := heap()
		built := build()
		after := heap()
		b.ReportMetric(float64(after-before)/float64(n), "B/object")
		runtime.KeepAlive(built)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
