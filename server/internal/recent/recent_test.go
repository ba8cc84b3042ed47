package recent

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

func text(s string) int64 { return int64(len(s)) }

func TestOnce(t *testing.T) {
	c := New[int](4, 100, text)
	var made atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if v, err := c.Get(1, func() (string, error) { return fmt.Sprint(made.Add(1)), nil }); v != "1" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		})
	}
	all.Wait()
}

func TestFailuresAreNotCached(t *testing.T) {
	c := New[int](4, 100, text)
	if _, err := c.Get(1, func() (string, error) { return "", errors.New("not now") }); err == nil {
		t.Error("no error")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = c.Get(1, func() (string, error) { panic("no value") })
	}()
	if v, err := c.Get(1, func() (string, error) { return "now", nil }); v != "now" || err != nil {
		t.Errorf("got %q, %v", v, err)
	}
	if len(c.entries) != 1 || len(c.order) != 1 {
		t.Errorf("%d entries, %d in order", len(c.entries), len(c.order))
	}
}

// For any sequence of calls, the cache contains the newest values within its bounds, as a slice does.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, bytes := rapid.IntRange(1, 5).Draw(t, "entries"), rapid.Int64Range(1, 20).Draw(t, "bytes")
		c := New[string](most, bytes, text)
		var model []string
		for _, key := range rapid.SliceOf(rapid.StringN(1, 6, 6)).Draw(t, "keys") {
			made := false
			if v, err := c.Get(key, func() (string, error) { made = true; return key, nil }); v != key || err != nil {
				t.Fatalf("%q is %q, %v", key, v, err)
			}
			if !made {
				continue
			}
			model = append(model, key)
			for size(model) > bytes && len(model) > 1 || len(model) > most {
				model = model[1:]
			}
			if len(c.entries) != len(model) || c.bytes != size(model) {
				t.Fatalf("%d entries of %d bytes, want %q", len(c.entries), c.bytes, model)
			}
			for _, key := range model {
				if c.entries[key] == nil {
					t.Fatalf("%q was dropped, want %q", key, model)
				}
			}
		}
	})
}

func size(all []string) (n int64) {
	for _, s := range all {
		n += text(s)
	}
	return n
}
