package readpath

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/keepwatch/keepwatch/storage"
)

// kept is how much is kept of a storage's state.
func (r *rig) kept() (n int64) {
	n = r.reader.sumBlocks(r.storage.Store().Snapshot(), (*kept).bytes)
	for o := range r.storage.Store().Snapshot().All() {
		n += o.(*storage.Object).KeptBytes()
	}
	return n
}

// A budget's bound is kept, and what is not asked for any more makes room for what is.
func TestBudgetIsKept(t *testing.T) {
	const size = 2000
	budget := NewBudget(20 * size)
	r := newRig(t, pods, options{budget: budget})
	for i := range 100 {
		r.create("default", fmt.Sprintf("o%02d", i), noted(string(bytes.Repeat([]byte("x"), size-500))))
	}
	for round := range 5 {
		r.get(r.path(""), accept("application/json"))
		if kept := r.kept(); kept > budget.most+budget.most/8 || kept == 0 {
			t.Fatalf("round %d: %d bytes are kept of at most %d", round, kept, budget.most)
		}
	}
	for range 3 { // it is asked for again and again, while the rest is asked for in between
		for i := range 100 {
			r.get(r.path("default")+"/o42", accept("application/json"))
			r.get(r.path("default")+fmt.Sprintf("/o%02d", i), accept("application/json"))
		}
	}
	if r.held("default", "o42").Kept(plainJSON) == nil {
		t.Error("what is asked for most is not kept")
	}
}

// What was kept with objects that are gone does not use up the budget.
func TestBudgetOfReplacedObjects(t *testing.T) {
	budget := NewBudget(20_000)
	r := newRig(t, pods, options{budget: budget})
	r.create("default", "o1")
	for i := range 200 {
		r.update("default", "o1", noted(fmt.Sprint(i, string(bytes.Repeat([]byte("x"), 1000)))))
		r.get(r.path("default")+"/o1", accept("application/json"))
		if r.held("default", "o1").Kept(plainJSON) == nil {
			t.Fatalf("round %d: there is no room for the only object; %d of %d bytes are used", i, budget.Bytes(), budget.most)
		}
	}
}

// A reader that is closed gives its part back to the others.
func TestBudgetIsShared(t *testing.T) {
	budget := NewBudget(20_000)
	first, second := newRig(t, pods, options{budget: budget}), newRig(t, nodes, options{budget: budget})
	for i := range 20 {
		first.create("default", fmt.Sprint("o", i), noted(string(bytes.Repeat([]byte("x"), 1000))))
		second.create("", fmt.Sprint("o", i), noted(string(bytes.Repeat([]byte("x"), 500))))
	}
	for range 3 {
		first.get(first.path(""), accept("application/json"))
		second.get(second.path(""), accept("application/json"))
		if kept := first.kept() + second.kept(); kept > budget.most+budget.most/8 {
			t.Errorf("%d bytes are kept together", kept)
		}
	}
	first.reader.Close()
	first.stop()
	for range 3 {
		second.get(second.path(""), accept("application/json"))
	}
	if kept := second.kept(); kept < 15_000 {
		t.Errorf("alone it keeps %d bytes", kept)
	}
}

// Compressed segments count as well, and make room when nobody asks for them any more.
func TestBudgetOfBlocks(t *testing.T) {
	budget := NewBudget(400_000)
	r := newRig(t, pods, options{budget: budget})
	for i := range 100 {
		r.reach(r.create("default", fmt.Sprintf("o%02d", i), noted(hex.EncodeToString(randomBytes(uint64(i), 1500)))))
	}
	blocks := func() int64 { return r.reader.sumBlocks(r.storage.Store().Snapshot(), (*kept).bytes) }
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
		if kept := r.kept(); kept > budget.Bytes() || kept > budget.most+budget.most/8 {
			t.Fatalf("round %d: %d bytes are kept, %d known, %d allowed", round, kept, budget.Bytes(), budget.most)
		}
		if n := blocks(); n < 100_000 {
			t.Fatalf("round %d: only %d bytes of blocks are kept", round, n)
		}
	}
	for round := 0; blocks() > 0; round++ {
		if round == 20 {
			t.Fatalf("%d bytes of blocks are still kept, though nobody asks for them", blocks())
		}
		r.get(r.path(""), accept("application/json"))
		r.get(r.path(""), accept("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"))
		budget.keep(int(budget.most), func() {}) // as large as that: room is made
	}
}

// While many ask, what is known to be kept is at least what is kept.
func TestBudgetCountsWhatIsKept(t *testing.T) {
	budget := NewBudget(30_000)
	r := newRig(t, pods, options{budget: budget})
	for i := range 100 {
		r.reach(r.create("default", fmt.Sprint("o", i), noted(string(bytes.Repeat([]byte("x"), 1000)))))
	}
	var all sync.WaitGroup
	for from := range 4 {
		all.Go(func() {
			for i := range 400 {
				o := r.held("default", fmt.Sprint("o", (from*25+i)%100))
				must(r.reader.item(o, metadataJSON))(t)
			}
		})
	}
	all.Wait()
	if kept := r.kept(); kept > budget.Bytes() || budget.Bytes() > budget.most+budget.most/8 {
		t.Errorf("%d bytes are kept, %d known, %d allowed", kept, budget.Bytes(), budget.most)
	}
}
