package watchcache

import (
	"context"
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// family is what caches share that have objects of each other: how they are decoded, and what is derived from segments
// of them. It refers to no cache, so that an object keeps none alive.
type family struct {
	config     Config
	goType     reflect.Type // of what NewFunc returns
	messages   reflect.Type // the Go type of messages
	hasMessage bool         // objects can be cached as messages
	// verbatimProtobuf is true if the source's bytes are served as they are and are protobuf.
	verbatimProtobuf bool
	indexes          []index
	unreadable       *unreadable
	decoding         [64]sync.Mutex // of objects, by their keys: objects that are written together have one revision
	seed             maphash.Seed
	interner         *interner
	uidHashes        *store.Memo[*uidHashes]
	sizes            *store.Memo[int64]
	running          atomic.Pointer[context.Context] // of the Run that began last; nil before
}

func newFamily(config Config) *family {
	example := config.NewFunc()
	if config.Served != nil {
		example = config.Served.New()
	}
	f := &family{
		config:     config,
		goType:     reflect.TypeOf(config.NewFunc()),
		messages:   reflect.TypeOf(example).Elem(),
		hasMessage: hasMessage(example),
		indexes:    indexesOf(config.Indexers),
		unreadable: newUnreadable(),
		seed:       maphash.MakeSeed(),
		interner:   newInterner(),
		uidHashes:  newUIDHashes(),
		sizes:      newSizes(),
	}
	if v, ok := config.NewFunc().(Verbatim); ok {
		f.verbatimProtobuf = v.Protobuf()
	}
	return f
}

// runContext returns the context of Run.
func (f *family) runContext() context.Context {
	if ctx := f.running.Load(); ctx != nil {
		return *ctx
	}
	return nil
}

// At returns a cache that begins with a snapshot in place of a list, and follows the source that newSource returns from
// there, which New describes. The snapshot has objects of c's NewObject, or of another cache that c.At or c.Still has
// returned. They are decoded once for all of these caches. The source may wait for a watch of the cache, by
// [Cache.AwaitWatch].
func (c *Cache) At(snapshot *store.Snapshot, newSource func(*Cache) (Source, error)) (*Cache, error) {
	at := c.newCache()
	at.store, at.pace = store.NewAt(snapshot, at.storeOptions()), newPace()
	if err := at.follow(newSource); err != nil {
		return nil, err
	}
	return at, nil
}

// Still returns a cache of a snapshot, as At does, that never changes. It is ready, and is not run. A watch of it
// receives nothing after the snapshot.
func (c *Cache) Still(snapshot *store.Snapshot) *Cache {
	at := c.newCache()
	at.store, at.source = store.NewAt(snapshot, at.storeOptions()), still{revision: snapshot.Revision()}
	close(at.ready)
	return at
}

// still is the source of a state that never changes. Reads call only its Newest.
type still struct {
	Source
	revision keepwatch.Revision
}

func (s still) Newest(context.Context) (keepwatch.Revision, error) { return s.revision, nil }
