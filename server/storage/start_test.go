package storage_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/storage"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// countingTransformer counts the values that are read from etcd.
type countingTransformer struct {
	value.Transformer
	read atomic.Int32
}

func (c *countingTransformer) TransformFromStorage(ctx context.Context, b []byte,
	about value.Context) ([]byte, bool, error) {
	c.read.Add(1)
	return c.Transformer.TransformFromStorage(ctx, b, about)
}

// A start decodes no object before it is read, and each state is decoded once.
func TestStartDecodesNoObjects(t *testing.T) {
	t.Parallel()
	c := &countingTransformer{Transformer: identity.NewEncryptCheckTransformer()}
	r := newRig(t, options{transformer: c})
	first := r.create("a")
	created := r.create("b")
	last := r.label("b", "x")
	r.options.notWarmed = true
	r.stop()
	c.read.Store(0)
	r.start()
	if n := c.read.Load(); n != 0 {
		t.Errorf("a start decoded %d objects", n)
	}
	expect(t, r.watch("/pods/", from(first.ResourceVersion)), eventText(watch.Added, created), eventText(watch.Modified,
		last))
	if n := c.read.Load(); n != 2 {
		t.Errorf("a watch of two events decoded %d objects", n)
	}
	for range 2 {
		if n := len(r.list(everything).Items); n != 2 {
			t.Errorf("%d objects are listed", n)
		}
	}
	if n := c.read.Load(); n != 3 {
		t.Errorf("of three states %d were decoded", n)
	}
	r.options.notWarmed = false
	r.stop()
	c.read.Store(0)
	r.start() // it waits until all objects are decoded
	if n := c.read.Load(); n != 2 {
		t.Errorf("after the start %d objects were decoded, want all", n)
	}
	added := r.create("c")
	expect(t, r.watch("/pods/", from(last.ResourceVersion)), eventText(watch.Added, added))
	r.list(everything)
	if n := c.read.Load(); n != 3 {
		t.Errorf("of a new object %d states were decoded", n-2)
	}
}

// An index finds an object that could not be read when it was indexed, once it can be read and after it
// has changed.
func TestIndexOfUnreadableObjects(t *testing.T) {
	t.Parallel()
	f := &failing{Transformer: identity.NewEncryptCheckTransformer()}
	r := newRig(t, options{transformer: f, indexers: podIndexers})
	for name, node := range map[string]string{"a": "n", "b": "m"} {
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: example.PodSpec{NodeName: node}}
		if err := r.Create(t.Context(), "/pods/ns/"+name, pod, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	f.set(true)
	r.restart()
	if _, ok := r.Interface.(*storage.Storage).Cache().Snapshot().Index("f:spec.nodeName"); !ok {
		t.Fatal("no index")
	}
	byNode := everything
	byNode.Predicate = apistorage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.ParseSelectorOrDie("spec.nodeName=n"), GetAttrs: podAttrs,
		IndexFields: []string{"spec.nodeName"},
	}
	if err := r.GetList(t.Context(), "/pods/", byNode, &example.PodList{}); !apistorage.IsInternalError(err) {
		t.Errorf("got %v", err)
	}
	f.set(false)
	for range 2 {
		if items := r.list(byNode).Items; len(items) != 1 || items[0].Name != "a" {
			t.Errorf("on the node: %v", items)
		}
		r.label("a", "x")
		r.label("b", "x")
	}
	r.delete("a")
	if items := r.list(byNode).Items; len(items) != 0 {
		t.Errorf("on the node: %v", items)
	}
}

// A list by an index is in key order, and its pages are complete, also if some objects could
// not be read when they were indexed. Once they can be, the first list that reads them repairs the
// index.
func TestIndexOfObjectsThatBecomeReadable(t *testing.T) {
	t.Parallel()
	f := &failing{Transformer: identity.NewEncryptCheckTransformer()}
	r := newRig(t, options{transformer: f, indexers: podIndexers})
	s := r.Interface.(*storage.Storage)
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		f.set(i%2 == 1) // b and d
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: example.PodSpec{NodeName: "n"}}
		if err := r.Create(t.Context(), "/pods/ns/"+name, pod, nil, 0); err != nil {
			t.Fatal(err)
		}
		must(s.Cache().WaitForNewest(t.Context()))(t)
	}
	byNode := everything
	byNode.Predicate = apistorage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.ParseSelectorOrDie("spec.nodeName=n"), GetAttrs: podAttrs,
		IndexFields: []string{"spec.nodeName"},
	}
	unread := func() (names []string) {
		x, _ := s.Cache().Snapshot().Index("f:spec.nodeName")
		for value := range x.Values() {
			for key := range x.Keys(value) {
				if value != "n" {
					names = append(names, key.Name)
				}
			}
		}
		return names
	}
	if got := unread(); !slices.Equal(got, []string{"b", "d"}) {
		t.Errorf("the index does not know the values of %v", got)
	}
	f.set(false)
	r.delete("d") // unread by the index until its end
	must(s.Cache().WaitForNewest(t.Context()))(t)
	if got := unread(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("after a deletion the index does not know the values of %v", got)
	}
	var names []string
	page := byNode
	page.Predicate.Limit = 1
	for {
		list := r.list(page)
		for _, pod := range list.Items {
			names = append(names, pod.Name)
		}
		if page.Predicate.Continue = list.Continue; list.Continue == "" {
			break
		}
	}
	if !slices.Equal(names, []string{"a", "b", "c", "e"}) {
		t.Errorf("the pages show %v", names)
	}
	if got := unread(); len(got) > 0 {
		t.Errorf("after a list the index does not know the values of %v", got)
	}
}

// A watch with a selector receives a matching object that could not be read at first, once it can be. It
// never receives an object that does not match.
func TestWatchOfObjectsThatBecomeReadable(t *testing.T) {
	t.Parallel()
	f := &failing{Transformer: identity.NewEncryptCheckTransformer()}
	r := newRig(t, options{transformer: f})
	before := r.create("before")
	f.set(true)
	r.create("a")
	must(r.Interface.(*storage.Storage).Cache().WaitForNewest(t.Context()))(t)
	selecting := withLabel(from(before.ResourceVersion), "x")
	expect(t, r.watch("/pods/", selecting), "ERROR InternalError", "end")
	f.set(false)
	w := r.watch("/pods/", selecting)
	x := r.label("a", "x")
	expect(t, w, eventText(watch.Added, x))
	x.ResourceVersion = r.label("a", "y").ResourceVersion
	expect(t, w, eventText(watch.Deleted, x))
}

// stubTransformer calls a function of the test before each read, whose error fails the read.
type stubTransformer struct {
	value.Transformer
	before atomic.Pointer[func() error]
}

func (s *stubTransformer) TransformFromStorage(ctx context.Context, b []byte,
	about value.Context) ([]byte, bool, error) {
	if err := (*s.before.Load())(); err != nil {
		return nil, false, err
	}
	return s.Transformer.TransformFromStorage(ctx, b, about)
}

// A read succeeds while a concurrent read of the same object fails.
func TestConcurrentReadAndFailure(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fails := func() error { return broken }
	f := &stubTransformer{Transformer: identity.NewEncryptCheckTransformer()}
	f.before.Store(&fails)
	r := newRig(t, options{transformer: f})
	s := r.Interface.(*storage.Storage)
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Labels: map[string]string{"l": "x"}}}
	must(r.etcd.KV.Put(t.Context(), "/pods/ns/a", string(must(runtime.Encode(protobufCodec(), pod))(t))))(t)
	must(s.Cache().WaitForNewest(t.Context()))(t)
	o, _ := s.Cache().Snapshot().Get(keepwatch.Key{Namespace: "ns", Name: "a"})

	reads, release := make(chan struct{}), make(chan struct{})
	waits := func() error { close(reads); <-release; return nil }
	f.before.Store(&waits)
	read := make(chan *watchcache.Object)
	go func() {
		known, err := s.Cache().Read(o)
		if err != nil {
			t.Error(err)
		}
		read <- known
	}()
	<-reads
	f.before.Store(&fails)
	if _, err := s.Cache().Read(o); !errors.Is(err, broken) {
		t.Errorf("reading fails with %v", err)
	}
	close(release)
	if known := <-read; known == nil || known.Labels().Get("l") != "x" {
		t.Errorf("read is %v", known)
	}
}
