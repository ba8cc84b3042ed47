package clientgo_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
)

// BenchmarkReads reads the caches of client-go's informer and of Keepwatch's, with 50,000
// objects in 50 namespaces.
func BenchmarkReads(b *testing.B) {
	const objects = 50_000
	source := newUpdates(objects)
	for i, p := range source.pods {
		p.Namespace, p.Labels = fmt.Sprint("ns", i%50), map[string]string{"app": fmt.Sprint("app", i/50%100)}
	}
	var keys []string // in random order, and not the strings of a cache
	for _, j := range rand.New(rand.NewPCG(1, 2)).Perm(objects) {
		keys = append(keys, fmt.Sprintf("ns%d/%d", j%50, j))
	}
	for name, build := range map[string]func(cache.ListerWatcher, cache.Indexers) cache.SharedIndexInformer{
		"client-go": func(lw cache.ListerWatcher, x cache.Indexers) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, x)
		},
		"keepwatch": func(lw cache.ListerWatcher, x cache.Indexers) cache.SharedIndexInformer {
			return clientgo.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, x)
		},
	} {
		inf := build(source, cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
			"app":                func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Labels["app"]}, nil },
		})
		stop := make(chan struct{})
		ended := make(chan struct{})
		go func() { defer close(ended); inf.Run(stop) }()
		cache.WaitForCacheSync(stop, inf.HasSynced)
		x := inf.GetIndexer()
		b.Run("Get/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok, _ := x.GetByKey(keys[i%objects]); !ok {
					b.Fatal("not there")
				}
			}
		})
		b.Run("List/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(x.List()) != objects {
					b.Fatal("not all")
				}
			}
		})
		for _, of := range []struct{ index, value string }{{cache.NamespaceIndex, "ns%d"}, {"app", "app%d"}} {
			b.Run("ByIndex/"+of.index+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if found, _ := x.ByIndex(of.index, fmt.Sprintf(of.value, i%50)); len(found)%500 != 0 {
						b.Fatal("not all")
					}
				}
			})
		}
		close(stop)
		<-ended
	}
}
