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
			if v, err := c.Of(1, func() (string, error) { return fmt.Sprint(made.Add(1)), nil }); v != "1" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		})
	}
	all.Wait()
}

func TestFailuresAreTriedAgain(t *testing.T) {
	c := New[int](4, 100, text)
	if _, err := c.Of(1, func() (string, error) { return "", errors.New("not now") }); err == nil {
		t.Error("no error")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = c.Of(1, func() (string, error) { panic("for good") })
	}()
	if v, err := c.Of(1, func() (string, error) { return "now", nil }); v != "now" || err != nil {
		t.Errorf("got %q, %v", v, err)
	}
	if len(c.known) != 1 || len(c.order) != 1 {
		t.Errorf("%d known, %d in order", len(c.known), len(c.order))
	}
}

// Whatever is asked for, the bounds hold and the newest are kept, as a slice would.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, bytes := rapid.IntRange(1, 5).Draw(t, "most"), rapid.Int64Range(1, 20).Draw(t, "bytes")
		c := New[string](most, bytes, text)
		var model []string
		for _, key := range rapid.SliceOf(rapid.StringN(1, 6, 6)).Draw(t, "keys") {
			fresh := false
			if v, err := c.Of(key, func() (string, error) { fresh = true; return key, nil }); v != key || err != nil {
				t.Fatalf("%q is %q, %v", key, v, err)
			}
			if !fresh {
				continue
			}
			model = append(model, key)
			for size(model) > bytes && len(model) > 1 || len(model) > most {
				model = model[1:]
			}
			if len(c.known) != len(model) || c.held != size(model) {
				t.Fatalf("%d known of %d bytes, should be %q", len(c.known), c.held, model)
			}
			for _, kept := range model {
				if c.known[kept] == nil {
					t.Fatalf("%q was given up, should be %q", kept, model)
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
