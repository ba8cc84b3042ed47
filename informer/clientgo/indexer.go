package clientgo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/follow"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

// indexer is a cache.Indexer over a follower's store. Each call reads one snapshot, in key order,
// and blocks no other call.
//
// Unit tests put objects into the cache of an informer that never runs. Therefore, before the
// first list, the indexer reads and writes seeds. After it, writes are refused.
type indexer struct {
	follower *follow.Follower
	seeds    cache.Indexer

	adding   sync.Mutex
	indexers atomic.Pointer[cache.Indexers]
}

var (
	_ cache.Indexer = (*indexer)(nil)

	errReadOnly = errors.New("the cache follows the server and cannot be written")
)

func newIndexer(f *follow.Follower, indexers cache.Indexers) *indexer {
	x := &indexer{
		follower: f,
		seeds:    cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{}),
	}
	x.indexers.Store(&cache.Indexers{})
	if err := x.AddIndexers(indexers); err != nil {
		panic(err) // a new store has no index of that name
	}
	return x
}

// listed returns the newest state. ok is false before the first list.
func (x *indexer) listed() (state *store.Snapshot, ok bool) {
	state = x.follower.Current()
	return state, state != nil
}

// AddIndexers adds indexers at any time. It fails if one of their names exists.
func (x *indexer) AddIndexers(added cache.Indexers) error {
	x.adding.Lock()
	defer x.adding.Unlock()
	functions := map[string]store.IndexFunc{}
	for name, f := range added {
		functions[name] = follow.IndexFunc(name, f)
	}
	if err := x.follower.AddIndexes(functions); err != nil {
		return fmt.Errorf("indexer conflict: %w", err)
	}
	if err := x.seeds.AddIndexers(added); err != nil {
		return err
	}
	next := maps.Clone(x.GetIndexers())
	maps.Copy(next, added)
	x.indexers.Store(&next)
	return nil
}

// GetIndexers returns the indexers, which must not be changed.
func (x *indexer) GetIndexers() cache.Indexers { return *x.indexers.Load() }

// List returns all objects.
func (x *indexer) List() []any {
	state, ok := x.listed()
	if !ok {
		return x.seeds.List()
	}
	return follow.List(state.Segments(), state.Len())
}

// ListKeys returns the keys of all objects.
func (x *indexer) ListKeys() []string {
	state, ok := x.listed()
	if !ok {
		return x.seeds.ListKeys()
	}
	keys := make([]string, 0, state.Len())
	for o := range state.All() {
		if follow.Shown(o) != nil {
			keys = append(keys, o.Key().String())
		}
	}
	return keys
}

// Get returns the object with the key of obj.
func (x *indexer) Get(obj any) (any, bool, error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return nil, false, cache.KeyError{Obj: obj, Err: err}
	}
	return x.GetByKey(key)
}

// GetByKey returns the object of a key, "namespace/name" or "name".
func (x *indexer) GetByKey(key string) (any, bool, error) {
	if _, ok := x.listed(); !ok {
		return x.seeds.GetByKey(key)
	}
	value, found := x.follower.Get(key)
	return value, found, nil
}

// Index returns the objects that share a value with obj in an index.
func (x *indexer) Index(name string, obj any) ([]any, error) {
	state, ok := x.listed()
	if !ok {
		return x.seeds.Index(name, obj)
	}
	index, err := indexOf(state, name)
	if err != nil {
		return nil, err
	}
	valuesOf := x.GetIndexers()[name]
	if valuesOf == nil { // AddIndexers has not returned
		return nil, unknownIndex(name)
	}
	values, err := valuesOf(obj)
	if err != nil {
		return nil, err
	}
	found, seen := []any{}, map[keepwatch.Key]bool{}
	for _, value := range values {
		for o := range index.Objects(value) {
			if len(values) > 1 {
				if seen[o.Key()] {
					continue
				}
				seen[o.Key()] = true
			}
			found = append(found, o.(*item.Item).Value())
		}
	}
	return found, nil
}

func indexOf(state *store.Snapshot, name string) (store.Index, error) {
	index, ok := state.Index(name)
	if !ok {
		return store.Index{}, unknownIndex(name)
	}
	return index, nil
}

func unknownIndex(name string) error { return fmt.Errorf("index with name %s does not exist", name) }

// ByIndex returns the objects that have a value in an index.
func (x *indexer) ByIndex(name, value string) ([]any, error) {
	state, ok := x.listed()
	if !ok {
		return x.seeds.ByIndex(name, value)
	}
	if x.byNamespace(name) {
		return follow.List(state.SegmentsIn(value), 0), nil
	}
	if _, err := indexOf(state, name); err != nil {
		return nil, err
	}
	return x.follower.FindAll(func() iter.Seq[keepwatch.Key] {
		now, _ := x.listed() // FindAll blocks writes
		index, _ := now.Index(name)
		return index.Keys(value)
	}), nil
}

// byNamespace reports whether an index is client-go's index of namespaces. The store's order
// groups the objects by namespace already.
func (x *indexer) byNamespace(name string) bool {
	f := x.GetIndexers()[name]
	return f != nil && reflect.ValueOf(f).Pointer() == namespaces
}

var namespaces = reflect.ValueOf(cache.MetaNamespaceIndexFunc).Pointer()

// IndexKeys returns the keys of the objects that have a value in an index.
func (x *indexer) IndexKeys(name, value string) ([]string, error) {
	state, ok := x.listed()
	if !ok {
		return x.seeds.IndexKeys(name, value)
	}
	index, err := indexOf(state, name)
	if err != nil {
		return nil, err
	}
	keys := []string{}
	for key := range index.Keys(value) {
		keys = append(keys, key.String())
	}
	return keys, nil
}

// ListIndexFuncValues returns the values that objects have in an index.
func (x *indexer) ListIndexFuncValues(name string) []string {
	state, ok := x.listed()
	if !ok {
		return x.seeds.ListIndexFuncValues(name)
	}
	values := []string{}
	if index, ok := state.Index(name); ok {
		for value := range index.Values() {
			values = append(values, value)
		}
	}
	return values
}

// versionedStore is what cache.Store has from client-go v0.36 on.
type versionedStore interface {
	LastStoreSyncResourceVersion() string
	Bookmark(resourceVersion string)
}

// LastStoreSyncResourceVersion returns the resource version of the cache.
func (x *indexer) LastStoreSyncResourceVersion() string {
	if _, ok := x.listed(); !ok {
		if s, ok := x.seeds.(versionedStore); ok {
			return s.LastStoreSyncResourceVersion()
		}
	}
	return x.follower.ResourceVersion()
}

func (x *indexer) Add(obj any) error    { return x.seed("add", obj, x.seeds.Add) }
func (x *indexer) Update(obj any) error { return x.seed("update", obj, x.seeds.Update) }
func (x *indexer) Delete(obj any) error { return x.seed("delete", obj, x.seeds.Delete) }

func (x *indexer) seed(verb string, obj any, write func(any) error) error {
	if _, ok := x.listed(); !ok {
		return write(obj)
	}
	name := fmt.Sprintf("%T", obj)
	if about, err := meta.Accessor(obj); err == nil {
		name = about.GetName()
	}
	return refuse(fmt.Errorf("%s %s: %w", verb, name, errReadOnly))
}

// Replace replaces the seeds. It fails after the first list.
func (x *indexer) Replace(list []any, resourceVersion string) error {
	if _, ok := x.listed(); !ok {
		return x.seeds.Replace(list, resourceVersion)
	}
	return refuse(fmt.Errorf("replace: %w", errReadOnly))
}

// refuse reports and returns the error of a refused write: tests that write caches rarely check
// the error.
func refuse(err error) error {
	utilruntime.HandleErrorWithContext(context.Background(), err, "An informer's cache was not written")
	return err
}

// Bookmark sets the resource version of the seeds. After the first list it has no effect.
func (x *indexer) Bookmark(resourceVersion string) {
	if _, ok := x.listed(); !ok {
		if s, ok := x.seeds.(versionedStore); ok {
			s.Bookmark(resourceVersion)
		}
	}
}

// Resync does nothing: handlers resync separately.
func (x *indexer) Resync() error { return nil }
