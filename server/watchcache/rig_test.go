package watchcache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

func TestMain(m *testing.M) {
	os.Exit(await.Tests(m))
}

// memory is a source in memory. Its history can lag behind its newest revision, and it can be
// unavailable.
type memory struct {
	make func(*item, []byte) keepwatch.Object

	mu       sync.Mutex
	newest   keepwatch.Revision
	current  map[keepwatch.Key]*item
	history  []keepwatch.Change
	reported keepwatch.Revision // the newest revision that Newest has returned
	lags     bool               // watches deliver nothing
	failure  *keepwatch.Failure // of Newest
	broken   *keepwatch.Failure // of watches
	changed  chan struct{}
}

// item is the source's side of an object.
type item struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	value    []byte
}

func (i *item) Key() keepwatch.Key           { return i.key }
func (i *item) UID() keepwatch.UID           { return i.uid }
func (i *item) Revision() keepwatch.Revision { return i.revision }

// Equal compares the values; see store.Equaler.
func (i *item) Equal(o keepwatch.Object) bool {
	other, ok := o.(*item)
	return ok && bytes.Equal(i.value, other.value)
}

func newMemory(c *watchcache.Cache) *memory {
	return &memory{
		make:    func(i *item, value []byte) keepwatch.Object { return c.NewObject(i, value) },
		newest:  1,
		current: map[keepwatch.Key]*item{}, changed: make(chan struct{}),
	}
}

// change runs f, and wakes watches.
func (m *memory) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.changed)
	m.changed = make(chan struct{})
}

// put writes a widget with a label, and returns its revision.
func (m *memory) put(name, label string) keepwatch.Revision {
	return m.write(name, widget(name, label))
}

func widget(name, label string) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"ns","name":%q,"labels":{"l":%q}}}`, name,
		label)
}

// write writes an object, and returns its revision.
func (m *memory) write(name string, value []byte) keepwatch.Revision {
	return m.writeAt(keepwatch.Key{Namespace: "ns", Name: name}, value)
}

func (m *memory) writeAt(key keepwatch.Key, value []byte) (at keepwatch.Revision) {
	m.change(func() {
		m.newest++
		at = m.newest
		i := &item{key: key, revision: at, uid: keepwatch.UID(fmt.Sprint("u", at)), value: value}
		kind := keepwatch.Added
		if before := m.current[i.key]; before != nil {
			kind, i.uid = keepwatch.Modified, before.uid
		}
		m.current[i.key] = i
		m.history = append(m.history, keepwatch.Change{Type: kind, Revision: at, Object: m.make(i, i.value)})
	})
	return at
}

// has reports whether there is an object.
func (m *memory) has(key keepwatch.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current[key] != nil
}

// redefine changes a widget's label without a write: the revision stays, and no event is sent.
func (m *memory) redefine(name, label string) {
	m.change(func() {
		key := keepwatch.Key{Namespace: "ns", Name: name}
		i := *m.current[key]
		i.value = widget(name, label)
		m.current[key] = &i
		m.newest++ // of the definition
	})
}

// remove deletes an object.
func (m *memory) remove(name string) keepwatch.Revision {
	return m.removeAt(keepwatch.Key{Namespace: "ns", Name: name})
}

// removeAt removes objects at one revision.
func (m *memory) removeAt(keys ...keepwatch.Key) (at keepwatch.Revision) {
	m.change(func() {
		m.newest++
		at = m.newest
		for _, key := range keys {
			delete(m.current, key)
			m.history = append(m.history, keepwatch.Change{Type: keepwatch.Deleted, Revision: at, Object: &item{key: key,
				revision: at}})
		}
	})
	return at
}

// advance moves the newest revision without a change of the resource.
func (m *memory) advance(by keepwatch.Revision) { m.change(func() { m.newest += by }) }

// newestReported returns the newest revision that Newest has returned.
func (m *memory) newestReported() keepwatch.Revision {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reported
}

// breakWatch makes the open watch fail.
func (m *memory) breakWatch(f *keepwatch.Failure) { m.change(func() { m.broken = f }) }

func (m *memory) lag(lags bool) { m.change(func() { m.lags = lags }) }

func (m *memory) fail(f *keepwatch.Failure) { m.change(func() { m.failure = f }) }

func (m *memory) Newest(context.Context) (keepwatch.Revision, error) {
	var failure *keepwatch.Failure
	var newest keepwatch.Revision
	m.change(func() {
		if failure, newest = m.failure, m.newest; failure == nil {
			m.reported = newest
		}
	})
	if failure != nil {
		return 0, failure
	}
	return newest, nil
}

func (m *memory) Seed(context.Context, keepwatch.Target) error { return errors.New("no history") }

func (m *memory) List(context.Context, keepwatch.ListRequest) (keepwatch.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	page := keepwatch.Page{Revision: m.newest}
	for _, i := range m.current {
		page.Objects = append(page.Objects, m.make(i, i.value))
	}
	return page, nil
}

func (*memory) Unchanged(context.Context, keepwatch.Revision, keepwatch.Revision) error { return nil }

func (m *memory) StreamList(context.Context, keepwatch.Revision,
	func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return 0, nil, keepwatch.Failed(keepwatch.StreamingListUnsupported, "memory lists in pages")
}

func (m *memory) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	ctx, cancel := context.WithCancel(ctx)
	return &memoryWatch{m, ctx, cancel, from}, nil
}

type memoryWatch struct {
	*memory
	ctx    context.Context
	cancel context.CancelFunc
	from   keepwatch.Revision
}

func (w *memoryWatch) Close() { w.cancel() }

// Next returns all that follows, and a bookmark if Newest has returned a revision that the watch
// has not reached.
func (w *memoryWatch) Next() (keepwatch.Batch, error) {
	for {
		w.mu.Lock()
		batch := keepwatch.Batch{From: w.from, To: max(w.from, w.reported)}
		for _, c := range w.history {
			if c.Revision > w.from {
				batch.Changes, batch.To = append(batch.Changes, c), max(batch.To, c.Revision)
			}
		}
		changed, lags, broken := w.changed, w.lags, w.broken
		w.mu.Unlock()
		if broken != nil {
			return keepwatch.Batch{}, broken
		}
		if !lags && batch.To > w.from {
			w.from = batch.To
			return batch, nil
		}
		select {
		case <-changed:
		case <-w.ctx.Done():
			return keepwatch.Batch{}, keepwatch.Failed(keepwatch.Ended, "the watch was closed")
		}
	}
}

// rig is a watch cache of a source in memory.
type rig struct {
	*watchcache.Cache
	t      testing.TB
	source *memory
	cancel context.CancelFunc
	ended  chan error // what Run returns
}

func config() watchcache.Config {
	return watchcache.Config{
		GroupResource: schema.GroupResource{Group: "example.com", Resource: "widgets"}, ResourcePrefix: "/widgets",
		Namespaced: true,
		SourceName: "memory", SourcePrefix: "memory/", Codec: unstructured.UnstructuredJSONScheme, NewFunc: newWidget,
		GetAttrs: apistorage.DefaultNamespaceScopedAttr,
	}
}

func newWidget() runtime.Object {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("example.com/v1")
	o.SetKind("Widget")
	return o
}

// newCache returns a rig whose cache does not run.
func newCache(t testing.TB, history store.Options) *rig {
	t.Helper()
	c := config()
	c.Store = history
	return cacheOf(t, c)
}

// cacheOf is newCache with another configuration.
func cacheOf(t testing.TB, c watchcache.Config) *rig {
	t.Helper()
	r := &rig{t: t, ended: make(chan error, 1)}
	var err error
	r.Cache, err = watchcache.New(c, func(cache *watchcache.Cache) (watchcache.Source, error) {
		r.source = newMemory(cache)
		return r.source, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newRig returns a rig whose cache runs and is ready.
func newRig(t testing.TB, history store.Options) *rig {
	t.Helper()
	r := newCache(t, history)
	r.start()
	r.eventually("the cache is ready", func() bool { return r.ReadinessCheck() == nil })
	return r
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- r.Run(ctx)
	}()
	r.t.Cleanup(func() { cancel(); <-done })
}

// list lists the names of widgets, and returns the result with them.
func (r *rig) list(o apistorage.ListOptions) ([]string, *watchcache.ListResult, error) {
	o.Recursive = true
	result, err := r.List(r.t.Context(), "/widgets/", o)
	if err != nil {
		return nil, nil, err
	}
	names := []string{}
	for o := range result.All() {
		names = append(names, o.Key().Name)
	}
	return names, result, nil
}

func (r *rig) eventually(what string, done func() bool) {
	r.t.Helper()
	await.True(r.t, what, done)
}

// everything selects all objects; withLabel those with a label.
var everything = apistorage.ListOptions{Predicate: apistorage.Everything}

func withLabel(value string) apistorage.ListOptions {
	return apistorage.ListOptions{Predicate: apistorage.SelectionPredicate{
		Label: labels.SelectorFromSet(labels.Set{"l": value}), Field: fields.Everything(),
		GetAttrs: apistorage.DefaultNamespaceScopedAttr,
	}}
}

func at(revision keepwatch.Revision, o apistorage.ListOptions) apistorage.ListOptions {
	o.ResourceVersion = strconv.FormatUint(uint64(revision), 10)
	return o
}
