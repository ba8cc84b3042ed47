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
	"github.com/keepwatch/keepwatch/store"
	"github.com/keepwatch/keepwatch/watchcache"
)

// reachable is how many bytes of encodings can be reached from an object or a segment.
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

// blocks is how many bytes of blocks can be reached from a storage's state.
func (r *rig) blocks() (n int64) {
	for segment := range r.storage.Cache().Snapshot().Segments() {
		if known, ok := r.reader.blocks.Known(segment); ok {
			n += known.reachable()
		}
	}
	return n
}

// cached is all that can be reached from a storage's state.
func (r *rig) cached() int64 {
	n := r.blocks()
	for o := range r.storage.Cache().Snapshot().All() {
		n += encodingsOf(o)
	}
	return n
}

// has reports whether an object's item is cached. That it was asked is not noticed.
func (r *rig) isCached(name string, f encoding) bool {
	h, ok := r.cachedObject("default", name).Attached().(*handle)
	return ok && h.lookup(r.reader.key(f)) != nil
}

// sized makes an object of about so many bytes of JSON.
func withSize(bytes int) func(metav1.Object) { return withNote(strings.Repeat("x", bytes-500)) }

// A budget's bound is kept, and what is not asked for any more makes room for what is.
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
	for range 3 { // it is asked for again and again, while the rest is asked for in between
		for i := range 100 {
			r.get(r.path("default")+"/o42", accept("application/json"))
			r.get(r.path("default")+fmt.Sprintf("/o%02d", i), accept("application/json"))
		}
	}
	if !r.isCached("o42", objectJSON) {
		t.Error("what is asked for most is not cached")
	}
}

// All states that objects have had count, and what is reachable of them is bounded: also while
// the history keeps them, and also of events.
func TestBudgetOfPastStates(t *testing.T) {
	const most = 20_000
	budget := NewBudget(most)
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
		if total > most || total != budget.Bytes() {
			t.Fatalf("round %d: %d bytes are reachable, %d counted, of at most %d", i, total, budget.Bytes(), most)
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

// What is garbage gives its bytes back, though nobody asks for anything.
func TestEncodingsOfGarbageAreDropped(t *testing.T) {
	budget := NewBudget(1 << 20)
	r := newRig(t, pods, options{budget: budget, store: store.Options{WindowBytes: 1}})
	r.create("default", "o1")
	for i := range 100 {
		r.waitFor(r.update("default", "o1", withNote(fmt.Sprint(i, strings.Repeat("x", 2000)))))
		r.get(r.path("default")+"/o1", accept("application/json"))
		must(r.reader.eventEncoding(r.eventOf("default", "o1"), objectJSON))(t)
		must(r.reader.segmentBlock(r.segment(), listBody{encoding: objectJSON}))(t)
	}
	eventually(t, "only what is in the store is counted", func() bool {
		runtime.GC()
		return budget.Bytes() < 30_000
	})
}

// segment is the first of a storage's state.
func (r *rig) segment() store.Segment {
	for segment := range r.storage.Cache().Snapshot().Segments() {
		return segment
	}
	r.t.Fatal("there is nothing in the store")
	return store.Segment{}
}

// What is asked for often stays, however much is asked for once.
func TestFrequentlyReadEncodingsStayCached(t *testing.T) {
	const size, hot, all = 2000, 20, 300
	budget := NewBudget(80 * size)
	r := newRig(t, pods, options{budget: budget})
	name := func(i int) string { return fmt.Sprintf("o%03d", i) }
	for i := range all {
		r.waitFor(r.create("default", name(i), withSize(size)))
	}
	ask := func(i int) { r.get(r.path("default")+"/"+name(i), accept("application/json")) }
	for i := range hot {
		ask(i)
	}
	for i := hot; i < all; i++ {
		ask(i)
		ask(i % hot)
	}
	for i := range hot {
		if !r.isCached(name(i), objectJSON) {
			t.Errorf("%s is asked for often, and not cached", name(i))
		}
	}
	last := 0
	for i := all - hot; i < all; i++ {
		if r.isCached(name(i), objectJSON) {
			last++
		}
	}
	if last < hot/4 {
		t.Errorf("%d of the %d that were asked for last are cached", last, hot)
	}
}

// counting counts what is encoded.
type counting struct {
	apiruntime.Serializer
	encoded atomic.Int64
}

func (c *counting) Encode(o apiruntime.Object, to io.Writer) error {
	c.encoded.Add(1)
	return c.Serializer.Encode(o, to)
}

// A list that is a little longer than the budget is not encoded anew as a whole each time.
func TestListsLongerThanTheBudget(t *testing.T) {
	const size, all = 2000, 200
	budget := NewBudget(all * size)
	r := newRig(t, pods, options{budget: budget})
	count := &counting{Serializer: r.reader.json}
	r.reader.json = count
	for i := range all {
		r.waitFor(r.create("default", fmt.Sprintf("o%03d", i), withSize(size)))
	}
	for round := range 5 {
		count.encoded.Store(0)
		r.get(r.path(""), accept("application/json"))
		if n := count.encoded.Load(); (n == all) != (round == 0) || round > 0 && n > all/2 {
			t.Errorf("round %d: %d of %d objects are encoded", round, n, all)
		}
	}
}

// A reader of which nothing is asked any more leaves its part to the others.
func TestBudgetIsShared(t *testing.T) {
	const most = 40_000
	budget := NewBudget(most)
	first, second := newRig(t, pods, options{budget: budget}), newRig(t, nodes, options{budget: budget})
	for i := range 20 {
		first.waitFor(first.create("default", fmt.Sprint("o", i), withSize(1500)))
		second.waitFor(second.create("", fmt.Sprint("o", i), withSize(1500)))
	}
	for range 3 {
		first.get(first.path(""), accept("application/json"))
		second.get(second.path(""), accept("application/json"))
		if n := first.cached() + second.cached(); n > most {
			t.Errorf("%d bytes are cached together", n)
		}
	}
	for range 3 {
		second.get(second.path(""), accept("application/json"))
	}
	if n := second.cached(); n < 25_000 {
		t.Errorf("%d bytes are cached of what alone is asked for", n)
	}
}

// Compressed segments count as well, and make room when nobody asks for them any more.
func TestBudgetOfBlocks(t *testing.T) {
	const most = 400_000
	budget := NewBudget(most)
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
			t.Fatalf("round %d: another list", round)
		}
		if n := r.cached(); n > budget.Bytes() || n > most {
			t.Fatalf("round %d: %d bytes are cached, %d counted, %d allowed", round, n, budget.Bytes(), most)
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
		other.cache(encodingKey{}, []byte{}, int(most/20), useOf(i%2 == 0))
		defer runtime.KeepAlive(other)
	}
	t.Errorf("%d bytes of blocks are still cached, though nobody asks for them", r.blocks())
}

// Whatever many do at a time, what is counted is what is reachable, and bounded; and what is read
// is right.
func TestConcurrentUseOfABudget(t *testing.T) {
	const most, objects, workers = 100_000, 100, 8
	budget := NewBudget(most)
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
					if known := h.bytes(key, use(random.IntN(3))); known == nil {
						h.cache(key, make([]byte, size), size, useOf(f%2 == 0))
					} else if len(known) != size {
						t.Errorf("%d bytes, want %d", len(known), size)
					}
				}
				if n := budget.Bytes(); n > most {
					t.Errorf("%d bytes are counted", n)
				}
			}
		})
	}
	working.Wait()
	eventually(t, "what is reachable is counted, and nothing else", func() bool {
		runtime.GC()
		n := int64(0)
		for i := range all {
			n += all[i].Load().reachable()
		}
		return n == budget.Bytes()
	})
}
