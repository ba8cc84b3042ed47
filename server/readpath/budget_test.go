package readpath

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// reachable returns the size of the encodings that are reachable from an object or a segment.
func (e *encodingList) reachable() (n int64) {
	for one := e.first.Load(); one != nil; one = one.next.Load() {
		switch v := one.value.(type) {
		case []byte:
			n += int64(cap(v))
		case *block:
			n += int64(cap(v.deflated))
		}
		n += encodingBytes
	}
	return n
}

func encodingsOf(o keepwatch.Object) int64 {
	if h, ok := o.(*watchcache.Object).Attached().(*handle); ok {
		return h.reachable()
	}
	return 0
}

// blocks returns the size of the blocks that are reachable from a storage's state.
func (r *rig) blocks() (n int64) {
	for segment := range r.storage.Cache().Snapshot().Segments() {
		if known, ok := r.reader.blocks.Known(segment); ok {
			n += known.reachable()
		}
	}
	return n
}

// cached returns the size of all encodings that are reachable from a storage's state.
func (r *rig) cached() int64 {
	n := r.blocks()
	for o := range r.storage.Cache().Snapshot().All() {
		n += encodingsOf(o)
	}
	return n
}

// isCached reports whether an item encoding is cached, without marking it used.
func (r *rig) isCached(name string, f encoding) bool {
	h, ok := r.cachedObject("default", name).Attached().(*handle)
	return ok && h.lookup(r.reader.key(f)) != nil
}

// withSize makes an object of about the given number of bytes of JSON.
func withSize(bytes int) func(metav1.Object) { return withNote(strings.Repeat("x", bytes-500)) }

// Cached encodings never exceed the budget. Those that are no longer read are dropped for others.
func TestBudgetIsNotExceeded(t *testing.T) {
	const size = 2000
	budget := NewBudget(20 * size)
	r := newRig(t, pods, options{budget: budget})
	for i := range 100 {
		r.waitFor(r.create("default", fmt.Sprintf("o%02d", i), withSize(size)))
	}
	for round := range 5 {
		r.get(r.path(""), accept("application/json"))
		if n := r.cached(); n > 20*size || n == 0 || n > budget.Bytes() {
			t.Fatalf("round %d: %d bytes are cached, %d counted, of at most %d", round, n, budget.Bytes(), 20*size)
		}
	}
	for range 3 { // one object is read between the reads of all others
		for i := range 100 {
			r.get(r.path("default")+"/o42", accept("application/json"))
			r.get(r.path("default")+fmt.Sprintf("/o%02d", i), accept("application/json"))
		}
	}
	if !r.isCached("o42", objectJSON) {
		t.Error("the encoding that is read most often is not cached")
	}
}

// Encodings of all states of an object count, and their reachable size is bounded, also while the
// history contains the states, and also of events.
func TestBudgetOfPastStates(t *testing.T) {
	const limit = 20_000
	budget := NewBudget(limit)
	r := newRig(t, pods, options{budget: budget})
	r.create("default", "o1")
	var states []*watchcache.Object
	fresh := 0
	for i := range 200 {
		r.waitFor(r.update("default", "o1", withNote(fmt.Sprint(i, strings.Repeat("x", 500)))))
		r.get(r.path("default")+"/o1", accept("application/json"))
		e := r.eventOf("default", "o1")
		must(r.reader.eventEncoding(e, objectJSON))(t)
		states = append(states, e.Object)
		total := int64(0)
		for _, o := range states {
			total += encodingsOf(o)
		}
		if total > limit || total != budget.Bytes() {
			t.Fatalf("round %d: %d bytes are reachable, %d counted, of at most %d", i, total, budget.Bytes(), limit)
		}
		if r.isCached("o1", objectJSON) {
			fresh++
		}
	}
	if fresh < 100 {
		t.Errorf("the newest state was cached in %d of 200 rounds", fresh)
	}
	runtime.KeepAlive(states)
}

// Encodings of garbage are dropped without any request.
func TestEncodingsOfGarbageAreDropped(t *testing.T) {
	budget := NewBudget(1 << 20)
	r := newRig(t, pods, options{budget: budget, store: store.Options{WindowBytes: 1}})
	r.create("default", "o1")
	for i := range 100 {
		r.waitFor(r.update("default", "o1", withNote(fmt.Sprint(i, strings.Repeat("x", 2000)))))
		r.get(r.path("default")+"/o1", accept("application/json"))
		must(r.reader.eventEncoding(r.eventOf("default", "o1"), objectJSON))(t)
		must(r.reader.segmentBlock(r.segment(), listBody{encoding: objectJSON}, blockInput))(t)
	}
	await.True(t, "only encodings of the store's objects are counted", func() bool {
		runtime.GC()
		return budget.Bytes() < 30_000
	})
}

// segment returns the first segment of a storage's state.
func (r *rig) segment() store.Segment {
	for segment := range r.storage.Cache().Snapshot().Segments() {
		return segment
	}
	r.t.Fatal("the store is empty")
	return store.Segment{}
}

// Encodings that are read often stay cached, however many others are read once.
func TestFrequentlyReadEncodingsStayCached(t *testing.T) {
	const size, hot, all = 2000, 20, 300
	budget := NewBudget(80 * size)
	r := newRig(t, pods, options{budget: budget})
	name := func(i int) string { return fmt.Sprintf("o%03d", i) }
	for i := range all {
		r.waitFor(r.create("default", name(i), withSize(size)))
	}
	read := func(i int) { r.get(r.path("default")+"/"+name(i), accept("application/json")) }
	for i := range hot {
		read(i)
	}
	for i := hot; i < all; i++ {
		read(i)
		read(i % hot)
	}
	for i := range hot {
		if !r.isCached(name(i), objectJSON) {
			t.Errorf("%s is read often, and not cached", name(i))
		}
	}
	last := 0
	for i := all - hot; i < all; i++ {
		if r.isCached(name(i), objectJSON) {
			last++
		}
	}
	if last < hot/4 {
		t.Errorf("%d of the last %d read encodings are cached", last, hot)
	}
}

// counting counts encoded objects.
type counting struct {
	apiruntime.Serializer
	encoded atomic.Int64
}

func (c *counting) Encode(o apiruntime.Object, to io.Writer) error {
	c.encoded.Add(1)
	return c.Serializer.Encode(o, to)
}

// Of a repeated list that is a little larger than the budget, each read encodes only a part again.
func TestListsLongerThanTheBudget(t *testing.T) {
	const size, all = 2000, 200
	budget := NewBudget(all * size)
	r := newRig(t, pods, options{budget: budget})
	count := &counting{Serializer: r.reader.json}
	r.reader.json = count
	for i := range all {
		r.waitFor(r.create("default", fmt.Sprintf("o%03d", i), withSize(size)))
	}
	r.get(r.path(""), accept("application/json"))
	for round := range 5 {
		count.encoded.Store(0)
		r.get(r.path(""), accept("application/json"))
		if n := count.encoded.Load(); round > 0 && n > all/2 {
			t.Errorf("round %d: %d of %d objects are encoded", round, n, all)
		}
	}
}

// The encodings of a reader that is no longer used are dropped for those of others.
func TestBudgetIsShared(t *testing.T) {
	const limit = 40_000
	budget := NewBudget(limit)
	first, second := newRig(t, pods, options{budget: budget}), newRig(t, nodes, options{budget: budget})
	for i := range 20 {
		first.waitFor(first.create("default", fmt.Sprint("o", i), withSize(1500)))
		second.waitFor(second.create("", fmt.Sprint("o", i), withSize(1500)))
	}
	for range 3 {
		first.get(first.path(""), accept("application/json"))
		second.get(second.path(""), accept("application/json"))
		if n := first.cached() + second.cached(); n > limit {
			t.Errorf("%d bytes are cached together", n)
		}
	}
	for range 3 {
		second.get(second.path(""), accept("application/json"))
	}
	if n := second.cached(); n < 25_000 {
		t.Errorf("%d bytes are cached of the only reader in use", n)
	}
}

// Blocks count, too, and are dropped when they are no longer read.
func TestBudgetOfBlocks(t *testing.T) {
	const limit = 400_000
	budget := NewBudget(limit)
	r := newRig(t, pods, options{budget: budget})
	for i := range 100 {
		r.waitFor(r.create("default", fmt.Sprintf("o%02d", i), withNote(hex.EncodeToString(randomBytes(uint64(i), 1500)))))
	}
	want := ""
	for round := range 5 {
		_, body := r.get(r.path(""), accept("application/json", "Accept-Encoding", "gzip"))
		got := string(must(io.ReadAll(must(gzip.NewReader(bytes.NewReader(body)))(t)))(t))
		if want == "" {
			want = got
		}
		if got != want || !strings.HasPrefix(got, `{"kind":"PodList"`) {
			t.Fatalf("round %d: the list differs", round)
		}
		if n := r.cached(); n > budget.Bytes() || n > limit {
			t.Fatalf("round %d: %d bytes are cached, %d counted, %d allowed", round, n, budget.Bytes(), limit)
		}
		if n := r.blocks(); n < 100_000 {
			t.Fatalf("round %d: only %d bytes of blocks are cached", round, n)
		}
	}
	for i := range 1000 {
		if r.blocks() == 0 {
			return
		}
		other := budget.newHandle()
		other.cache(encodingKey{}, []byte{}, int(limit/20), useOf(i%2 == 0))
		defer runtime.KeepAlive(other)
	}
	t.Errorf("%d bytes of blocks are still cached, although they are no longer read", r.blocks())
}

// Under concurrent use, the counted encodings are the reachable ones, and bounded, and reads return the
// right bytes.
func TestConcurrentUseOfABudget(t *testing.T) {
	const limit, objects, workers = 100_000, 100, 8
	budget := NewBudget(limit)
	all := make([]atomic.Pointer[handle], objects)
	for i := range all {
		all[i].Store(budget.newHandle())
	}
	var working sync.WaitGroup
	for worker := range workers {
		working.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 5000 {
				i, f := random.IntN(objects), encoding(random.IntN(5))
				h, key, size := all[i].Load(), encodingKey{reader: 1, encoding: f}, 100+10*int(f)
				switch random.IntN(20) {
				case 0:
					all[i].Store(budget.newHandle()) // the other is garbage
				case 1:
					h.cacheEvent(encodingKey{reader: 1, encoding: f, event: "ADDED"}, make([]byte, size))
				case 2:
					h.drop()
				default:
					if known := h.bytes(key, use(random.IntN(int(listRead)+1))); known == nil {
						h.cache(key, make([]byte, size), size, useOf(f%2 == 0))
					} else if len(known) != size {
						t.Errorf("%d bytes, want %d", len(known), size)
					}
				}
				if n := budget.Bytes(); n > limit {
					t.Errorf("%d bytes are counted", n)
				}
			}
		})
	}
	working.Wait()
	await.True(t, "exactly the reachable encodings are counted", func() bool {
		runtime.GC()
		n := int64(0)
		for i := range all {
			n += all[i].Load().reachable()
		}
		return n == budget.Bytes()
	})
}
