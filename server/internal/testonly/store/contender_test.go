package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// The contenders of the benchmarks have the same objects: config maps of 1 KiB, which they
// share, and which none of them copies.

// first is the revision at which they have listed.
const first = 10_000_000

// namespaces is how many there are: one has 1 % of the objects.
const namespaces = 100

// object is a config map as an object of the store.
type object struct {
	*corev1.ConfigMap
	revision keepwatch.Revision
}

func (o *object) Key() keepwatch.Key           { return keepwatch.Key{Namespace: o.Namespace, Name: o.Name} }
func (o *object) UID() keepwatch.UID           { return keepwatch.UID(o.ConfigMap.UID) }
func (o *object) Revision() keepwatch.Revision { return o.revision }

// fleet is the objects, in the order of a list.
type fleet struct {
	items   []corev1.ConfigMap
	objects []keepwatch.Object // the same
	at      keepwatch.Revision // of the newest state
	random  *rand.Rand
}

func newFleet(n int) *fleet {
	f := &fleet{items: make([]corev1.ConfigMap, n), at: first, random: rand.New(rand.NewPCG(seed, 2))}
	for i := range f.items {
		// A namespace's objects are neighbours, and their names in order.
		namespace, k := i/(n/namespaces), i%(n/namespaces)
		f.items[i] = corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       fmt.Sprintf("namespace-%02d", namespace),
				Name:            fmt.Sprintf("deployment-%06d-%08x", k, uint32(i*2654435761)),
				UID:             types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i)),
				ResourceVersion: strconv.Itoa(i + 1),
			},
			Data: map[string]string{"payload": strings.Repeat("x", 1024)},
		}
		f.objects = append(f.objects, &object{&f.items[i], keepwatch.Revision(i + 1)})
	}
	return f
}

// some are n objects at random.
func (f *fleet) some(n int) []keepwatch.Object {
	some := make([]keepwatch.Object, n)
	for i := range some {
		some[i] = f.objects[f.random.IntN(len(f.objects))]
	}
	return some
}

// updates are new states of objects; the payload is that of the old ones.
func (f *fleet) updates(objects []keepwatch.Object) []keepwatch.Object {
	news := make([]keepwatch.Object, len(objects))
	for i, o := range objects {
		f.at++
		c := *o.(*object).ConfigMap
		c.ResourceVersion = f.at.String()
		news[i] = &object{&c, f.at}
	}
	return news
}

// contender is a cache of the objects.
type contender interface {
	apply([]keepwatch.Object)
	get(keepwatch.Key)
	listAll() int
	listNamespace(string) int
	snapshot() any             // nil if there is none
	changed(since any) (n int) // between a snapshot and now
	close()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// ours is the store.
type ours struct{ *store.Store }

func newOurs(f *fleet, window int64) ours {
	s := store.New(store.Options{WindowBytes: window})
	list, err := s.Replace(context.Background(), keepwatch.Relist{})
	must(err)
	for i := 0; i < len(f.objects); i += 500 {
		must(list.Put(context.Background(), f.objects[i:min(i+500, len(f.objects))]))
	}
	must(list.Commit(context.Background(), first))
	return ours{s}
}

// apply is an Apply for each.
func (s ours) apply(objects []keepwatch.Object) { s.applyBy(1, objects) }

// applyBy is an Apply for each n.
func (s ours) applyBy(n int, objects []keepwatch.Object) {
	for part := range slices.Chunk(objects, n) {
		batch := keepwatch.Batch{From: s.Revision(), To: part[len(part)-1].Revision(), Changes: make([]keepwatch.Change, 0,
			n)}
		for _, o := range part {
			batch.Changes = append(batch.Changes, keepwatch.Change{Type: keepwatch.Modified, Revision: o.Revision(), Object: o})
		}
		_, err := s.Apply(context.Background(), batch)
		must(err)
	}
}

// atOnce is the store when events arrive by the hundred, as they do under load: a source
// makes one batch of all available events.
type atOnce struct{ ours }

func (s atOnce) apply(objects []keepwatch.Object) { s.applyBy(100, objects) }

func (s ours) get(key keepwatch.Key) {
	if _, ok := s.Snapshot().Get(key); !ok {
		panic("not found")
	}
}

func (s ours) listAll() (n int) {
	for range s.Snapshot().All() {
		n++
	}
	return n
}

func (s ours) listNamespace(namespace string) (n int) {
	for range s.Snapshot().Namespace(namespace) {
		n++
	}
	return n
}

func (s ours) snapshot() any         { return s.Snapshot() }
func (s ours) changed(since any) int { return len(since.(*store.Snapshot).Diff(s.Snapshot())) }
func (ours) close()                  {}

// indexer is client-go's, with the index that every informer of a namespaced
// resource has.
type indexer struct{ cache.Indexer }

func newIndexer(f *fleet) indexer {
	i := indexer{cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
	for k := range f.items {
		must(i.Add(&f.items[k]))
	}
	return i
}

func (i indexer) apply(objects []keepwatch.Object) {
	for _, o := range objects {
		must(i.Update(o.(*object).ConfigMap))
	}
}

func (i indexer) get(key keepwatch.Key) {
	if _, ok, err := i.GetByKey(key.Namespace + "/" + key.Name); !ok || err != nil {
		panic("not found")
	}
}

func (i indexer) listAll() (n int) {
	for range i.List() {
		n++
	}
	return n
}

func (i indexer) listNamespace(namespace string) (n int) {
	list, err := i.ByIndex(cache.NamespaceIndex, namespace)
	must(err)
	for range list {
		n++
	}
	return n
}

// snapshot is a list, the only one there is, by key.
func (i indexer) snapshot() any {
	list := i.List()
	current := make(map[string]any, len(list))
	for _, o := range list {
		c := o.(*corev1.ConfigMap)
		current[c.Namespace+"/"+c.Name] = o
	}
	return current
}

func (i indexer) changed(since any) (n int) {
	current := since.(map[string]any)
	for _, o := range i.List() {
		c := o.(*corev1.ConfigMap)
		if current[c.Namespace+"/"+c.Name] != o {
			n++
		}
	}
	return n
}

func (indexer) close() {}
