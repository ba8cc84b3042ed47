package freshread

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/keepwatch/keepwatch"
)

// caller calls Reads, and answers its reads.
type caller struct {
	reads  *Reads
	count  int
	answer chan keepwatch.Revision // of the read that runs; 0 fails
}

var errRead = errors.New("no answer")

func (a *caller) read(ctx context.Context) (keepwatch.Revision, error) {
	a.count++
	select {
	case r := <-a.answer:
		if r == 0 {
			return 0, errRead
		}
		return r, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// call starts n concurrent calls.
func (a *caller) call(ctx context.Context, n int) <-chan keepwatch.Revision {
	results := make(chan keepwatch.Revision, n)
	for range n {
		go func() {
			r, _ := a.reads.Do(ctx, a.read)
			results <- r
		}()
	}
	synctest.Wait()
	return results
}

func expect(t *testing.T, results <-chan keepwatch.Revision, n int, want keepwatch.Revision) {
	t.Helper()
	synctest.Wait()
	if len(results) != n {
		t.Errorf("%d of %d have been answered", len(results), n)
	}
	for range len(results) {
		if r := <-results; r != want {
			t.Errorf("a caller received %d, want %d", r, want)
		}
	}
}

// Callers that wait when a read begins share it. No caller receives the result of a read
// that began before its call.
func TestReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &caller{reads: New(), answer: make(chan keepwatch.Revision)}
		first := a.call(t.Context(), 1)
		second := a.call(t.Context(), 50)
		a.answer <- 7
		expect(t, first, 1, 7)
		expect(t, second, 0, 0)
		third := a.call(t.Context(), 50)
		a.answer <- 8
		expect(t, second, 50, 8)
		a.answer <- 0
		expect(t, third, 50, 0)
		if a.count != 3 {
			t.Errorf("there were %d reads", a.count)
		}
	})
}

// A canceled caller does not fail the others.
func TestCanceledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &caller{reads: New(), answer: make(chan keepwatch.Revision)}
		first := a.call(t.Context(), 1)
		ctx, cancel := context.WithCancel(t.Context())
		canceled := a.call(ctx, 20)
		waiting := a.call(t.Context(), 20)
		a.answer <- 7 // any waiting caller performs the next read
		expect(t, first, 1, 7)
		cancel()
		expect(t, canceled, 20, 0)
		a.answer <- 8
		expect(t, waiting, 20, 8)
		if a.count < 2 || a.count > 3 {
			t.Errorf("there were %d reads", a.count)
		}
	})
}
