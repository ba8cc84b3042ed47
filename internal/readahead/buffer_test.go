package readahead

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
)

type object struct{ revision keepwatch.Revision }

func (o object) Key() keepwatch.Key           { return keepwatch.Key{Name: fmt.Sprint(o.revision)} }
func (o object) UID() keepwatch.UID           { return "" }
func (o object) Revision() keepwatch.Revision { return o.revision }

// changeAt is a part of one change and 10 bytes, as a Kubernetes API sends it.
func changeAt(r keepwatch.Revision) Part {
	change := keepwatch.Change{Type: keepwatch.Added, Revision: r, Object: object{r}}
	return Part{Changes: []keepwatch.Change{change}, Bytes: 10, After: r, To: r}
}

// writeAt is a part of n changes of one revision, as etcd sends it.
func writeAt(r keepwatch.Revision, n int) Part {
	p := Part{After: r - 1, To: r, Bytes: 10 * n}
	for range n {
		p.Changes = append(p.Changes, changeAt(r).Changes...)
	}
	return p
}

func progressAt(r keepwatch.Revision) Part { return Part{After: r, To: r} }

func bookmarkAt(r keepwatch.Revision) Part { return Part{After: r, To: r, Ends: true} }

var (
	roomy      = Limit{Changes: 1000, Bytes: 1 << 20}
	errStopped = errors.New("stopped")
	stopped    = &keepwatch.Failure{Kind: keepwatch.Ended, Err: errStopped}
)

func from(r keepwatch.Revision) keepwatch.Batch { return keepwatch.Batch{From: r, To: r} }

func text(b keepwatch.Batch) string {
	s := fmt.Sprintf("%v-%v:", b.From, b.To)
	for _, c := range b.Changes {
		s += fmt.Sprint(" ", c.Revision)
	}
	return s
}

// deliver puts parts while a consumer takes each batch as late as possible, and
// returns the batches.
func deliver(t *testing.T, b *Buffer, parts ...Part) (batches []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		go b.Fill(func() *keepwatch.Failure {
			if len(parts) == 0 {
				return stopped
			}
			p := parts[0]
			parts = parts[1:]
			return b.Put(p)
		})
		for {
			synctest.Wait() // the buffer is full or has ended
			batch, err := b.Next()
			if err != nil {
				if err != error(stopped) {
					t.Errorf("ended with %v", err)
				}
				return
			}
			batches = append(batches, text(batch))
		}
	})
	return batches
}

func TestBatches(t *testing.T) {
	for name, test := range map[string]struct {
		first keepwatch.Batch
		limit Limit
		parts []Part
		want  []string
	}{
		"changes join": {from(5), roomy, []Part{changeAt(6), changeAt(7), changeAt(7)},
			[]string{"5-7: 6 7 7"}},
		"a repeated change begins a batch": {from(5), roomy, []Part{changeAt(7), changeAt(6), changeAt(8)},
			[]string{"5-7: 7", "7-8: 6 8"}},
		"a repeated revision begins a batch": {from(5), roomy, []Part{writeAt(7, 2), writeAt(7, 1)},
			[]string{"5-7: 7 7", "7-7: 7"}},
		"the limit of changes": {from(5), Limit{2, 1000}, []Part{changeAt(6), changeAt(7), changeAt(8)},
			[]string{"5-7: 6 7", "7-8: 8"}},
		"the limit of bytes": {from(5), Limit{9, 20}, []Part{changeAt(6), changeAt(7), changeAt(8)},
			[]string{"5-7: 6 7", "7-8: 8"}},
		"one part above the limit": {from(5), Limit{2, 20}, []Part{writeAt(6, 3), writeAt(7, 1)},
			[]string{"5-6: 6 6 6", "6-7: 7"}},
		"a revision is not split": {from(5), Limit{3, 1000}, []Part{writeAt(6, 2), writeAt(7, 2)},
			[]string{"5-6: 6 6", "6-7: 7 7"}},
		"progress joins": {from(5), roomy, []Part{writeAt(6, 1), progressAt(9), writeAt(10, 1)},
			[]string{"5-10: 6 10"}},
		"progress joins a full batch": {from(5), Limit{1, 10}, []Part{writeAt(6, 1), progressAt(9)},
			[]string{"5-9: 6"}},
		"progress joins above the limit": {from(5), Limit{2, 20}, []Part{writeAt(6, 3), progressAt(9)},
			[]string{"5-9: 6 6 6"}},
		"progress below the batch": {from(5), roomy, []Part{writeAt(8, 1), progressAt(7)}, []string{"5-8: 8"}},
		"progress alone":           {from(5), roomy, []Part{progressAt(8)}, []string{"5-8:"}},
		"progress that repeats":    {from(5), roomy, []Part{progressAt(5), progressAt(4)}, nil},
		"a bookmark ends its batch": {from(5), roomy, []Part{changeAt(6), bookmarkAt(8), changeAt(8), changeAt(9)},
			[]string{"5-8: 6", "8-9: 8 9"}},
		"a bookmark at the last change": {from(5), roomy, []Part{changeAt(6), bookmarkAt(6), changeAt(7)},
			[]string{"5-6: 6", "6-6:", "6-7: 7"}},
		"a bookmark that repeats": {from(5), roomy, []Part{bookmarkAt(5), bookmarkAt(5)},
			[]string{"5-5:", "5-5:"}},
		"a first batch": {keepwatch.Batch{From: 5, To: 7}, roomy, []Part{changeAt(8)},
			[]string{"5-7:", "7-8: 8"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := deliver(t, New(test.first, test.limit), test.parts...)
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", test.want) {
				t.Errorf("batches %q, want %q", got, test.want)
			}
		})
	}
}

// The first failure ends the buffer. The consumer receives what was put before it, and
// then the same failure on each call.
func TestEndIsSticky(t *testing.T) {
	b := New(from(5), roomy)
	b.Put(changeAt(6))
	if got := b.End(stopped); got != stopped {
		t.Errorf("the first End returns %v", got)
	}
	if got := b.End(keepwatch.Failed(keepwatch.Idle, "late")); got != stopped {
		t.Errorf("a later End returns %v, not the first failure", got)
	}
	if got := b.Put(changeAt(7)); got != stopped {
		t.Errorf("Put behind the end returns %v", got)
	}
	if batch, err := b.Next(); err != nil || text(batch) != "5-6: 6" {
		t.Errorf("the last batch is %s, %v", text(batch), err)
	}
	for range 2 {
		if _, err := b.Next(); err != error(stopped) {
			t.Errorf("behind the last batch: %v", err)
		}
	}
}

// End wakes a waiting Put and a waiting Next.
func TestEndWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, empty := New(from(5), Limit{1, 10}), New(from(5), roomy)
		full.Put(changeAt(6))
		var tasks sync.WaitGroup
		tasks.Go(func() {
			if got := full.Put(changeAt(7)); got != stopped {
				t.Errorf("Put returns %v", got)
			}
		})
		tasks.Go(func() {
			if _, err := empty.Next(); err != error(stopped) {
				t.Errorf("Next returns %v", err)
			}
		})
		synctest.Wait()
		if !full.Full() || empty.Full() {
			t.Errorf("Full is %v while Put waits, %v while Next waits", full.Full(), empty.Full())
		}
		full.End(stopped)
		empty.End(stopped)
		tasks.Wait()
		if full.Full() || full.Revision() != 6 {
			t.Errorf("behind the end Full is %v and the revision %v", full.Full(), full.Revision())
		}
	})
}

// Put copies the changes: a source reuses the space of a revision.
func TestPutCopies(t *testing.T) {
	b := New(from(5), roomy)
	p := writeAt(6, 1)
	b.Put(p)
	p.Changes[0] = keepwatch.Change{}
	if batch, _ := b.Next(); text(batch) != "5-6: 6" {
		t.Errorf("the batch is %s", text(batch))
	}
}

// Next waits for the parts of a revision that is open until another one begins, its time is over, or the stream ends.
func TestOpenRevision(t *testing.T) {
	open := changeAt(6)
	open.Open = 2 * time.Second
	for name, test := range map[string]struct {
		then  func(b *Buffer)
		want  string
		after time.Duration
	}{
		"its time":       {func(*Buffer) {}, "5-6: 6", 2 * time.Second},
		"more of it":     {func(b *Buffer) { time.Sleep(time.Second); b.Join(open) }, "5-6: 6 6", 3 * time.Second},
		"another one":    {func(b *Buffer) { b.Put(changeAt(7)) }, "5-7: 6 7", 0},
		"the end":        {func(b *Buffer) { b.End(stopped) }, "5-6: 6", 0},
		"a repeated one": {func(b *Buffer) { b.Put(changeAt(5)) }, "5-6: 6", 0},
		"one after the other": {func(b *Buffer) {
			for i := range 20 {
				time.Sleep(3 * time.Second / 2)
				next := changeAt(keepwatch.Revision(7 + i))
				next.Open = open.Open
				b.Put(next)
			}
		}, "5-12: 6 7 8 9 10 11 12", 10 * time.Second},
		"what comes late": {func(b *Buffer) { time.Sleep(3 * time.Second); b.Join(open) }, "5-6: 6", 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(from(5), roomy)
				begun := time.Now()
				b.Put(open)
				var then sync.WaitGroup
				then.Go(func() { test.then(b) })
				batch, err := b.Next()
				if err != nil || text(batch) != test.want || time.Since(begun) != test.after {
					t.Errorf("%s, %v after %v, want %s after %v", text(batch), err, time.Since(begun), test.want, test.after)
				}
				then.Wait()
			})
		})
	}
}

// A part joins the batch that reaches its revision only while that was not taken.
func TestJoin(t *testing.T) {
	b := New(from(5), Limit{1, 10})
	if b.Join(changeAt(5)) {
		t.Error("a change joins a batch that does not reach its revision")
	}
	b.Put(changeAt(6))
	if !b.Join(changeAt(6)) || b.Join(changeAt(7)) {
		t.Error("a batch is joined by another revision alone")
	}
	large := changeAt(6)
	large.Bytes = maxJoined
	if b.Join(large) {
		t.Error("a batch is not bounded")
	}
	if batch, _ := b.Next(); text(batch) != "5-6: 6 6" {
		t.Errorf("the batch is %s", text(batch))
	}
	if b.Join(changeAt(6)) {
		t.Error("a change joins a batch that was taken")
	}
	b.Put(changeAt(6))
	if b.Join(changeAt(6)) {
		t.Error("a change joins a batch that repeats its revision")
	}
}

// Concurrent Put, Next, End and reads of the state lose nothing. It is for the race
// detector.
func TestConcurrentUse(t *testing.T) {
	const parts = 5000
	b := New(from(5), Limit{7, 70})
	var tasks sync.WaitGroup
	tasks.Go(func() {
		at := keepwatch.Revision(5)
		b.Fill(func() *keepwatch.Failure {
			if at++; at > 5+parts {
				return stopped
			}
			return b.Put(writeAt(at, 1))
		})
	})
	tasks.Go(func() {
		for b.Revision() < 5+parts {
			b.Full()
		}
		b.End(stopped)
	})
	at, count := keepwatch.Revision(5), 0
	for {
		batch, err := b.Next()
		if err != nil {
			break
		}
		if batch.From != at || len(batch.Changes) > 7 {
			t.Fatalf("batch %s behind %v", text(batch), at)
		}
		at, count = batch.To, count+len(batch.Changes)
	}
	tasks.Wait()
	if count != parts || at != 5+parts {
		t.Errorf("%d changes up to %v", count, at)
	}
}
