package operator

import (
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/operator/internal/cycle"
)

// Lookup is an index of objects: it returns values by key, of the newest states that were
// seen. It is safe for concurrent use.
type Lookup[K comparable, V any] struct {
	mu     sync.RWMutex
	values map[K]map[keepwatch.UID]indexed[V]
	keys   map[keepwatch.UID][]K
}

type indexed[V any] struct {
	key   keepwatch.Key
	value V
}

// Index declares an index of the objects that pass the filter options. f returns an
// object's values by key. It is called for every change and must be quick. The index
// contains the first list before any handler is called, also of other operators in the
// same [Run].
func Index[T metav1.Object, K comparable, V any](op *Operator, f func(object T) map[K]V,
	options ...HandlerOption) *Lookup[K, V] {
	d := newDeclaration[T](op, f, 0, "index", options)
	x := &Lookup[K, V]{values: map[K]map[keepwatch.UID]indexed[V]{}, keys: map[keepwatch.UID][]K{}}
	op.indexes = append(op.indexes, indexer{d.ID, d.Filter, func(state map[string]any, uid keepwatch.UID,
		key keepwatch.Key) error {
		object, err := decode[T](state)
		if err != nil {
			return err
		}
		x.replace(uid, key, f(object))
		return nil
	}, x.remove})
	return x
}

// Get returns the values of a key, sorted by the objects' namespaces and names.
func (x *Lookup[K, V]) Get(key K) []V {
	x.mu.RLock()
	found := make([]indexed[V], 0, len(x.values[key]))
	for _, v := range x.values[key] {
		found = append(found, v)
	}
	x.mu.RUnlock()
	slices.SortFunc(found, func(a, b indexed[V]) int { return a.key.Compare(b.key) })
	values := make([]V, len(found))
	for i, v := range found {
		values[i] = v.value
	}
	return values
}

// Keys returns the keys that have values, in no order.
func (x *Lookup[K, V]) Keys() []K {
	x.mu.RLock()
	defer x.mu.RUnlock()
	keys := make([]K, 0, len(x.values))
	for k := range x.values {
		keys = append(keys, k)
	}
	return keys
}

func (x *Lookup[K, V]) replace(uid keepwatch.UID, key keepwatch.Key, values map[K]V) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeLocked(uid)
	for k, v := range values {
		if x.values[k] == nil {
			x.values[k] = map[keepwatch.UID]indexed[V]{}
		}
		x.values[k][uid] = indexed[V]{key, v}
		x.keys[uid] = append(x.keys[uid], k)
	}
}

func (x *Lookup[K, V]) remove(uid keepwatch.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeLocked(uid)
}

func (x *Lookup[K, V]) removeLocked(uid keepwatch.UID) {
	for _, k := range x.keys[uid] {
		delete(x.values[k], uid)
		if len(x.values[k]) == 0 {
			delete(x.values, k)
		}
	}
	delete(x.keys, uid)
}

// indexer is an index without its types.
type indexer struct {
	id     string
	filter cycle.Filter
	put    func(state map[string]any, uid keepwatch.UID, key keepwatch.Key) error
	remove func(keepwatch.UID)
}

// index updates an index with a change. An object for which the function fails is removed
// from the index, and the error is logged.
func (e *engine) index(i indexer, o *object, c change) {
	err := i.update(o, c)
	if err == nil {
		return
	}
	i.remove(o.uid)
	e.logger.Error("the object cannot be indexed", "index", i.id, "object", o.key.String(), "error", err)
}

func (i indexer) update(o *object, c change) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	if c.typ == keepwatch.Deleted || !i.filter.Matches(c.object.Object) {
		i.remove(o.uid)
		return nil
	}
	return i.put(c.object.Object, o.uid, o.key)
}
