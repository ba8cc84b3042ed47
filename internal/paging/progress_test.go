package paging

import (
	"fmt"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// read returns the number of pages after which a list ends with an error, 0 if none of n does.
func read(n int, page func(i int) Page) int {
	var p Progress
	for i := range n {
		var err error
		if p, err = p.After(page(i)); err != nil {
			return i + 1
		}
	}
	return 0
}

func key(i int) keepwatch.Key { return keepwatch.Key{Name: fmt.Sprint(i)} }

// TestRepeatedPages checks that every list that repeats pages is detected, by either sign.
func TestRepeatedPages(t *testing.T) {
	for before := range 20 {
		for length := 1; length < 20; length++ {
			number := func(i int) int {
				if i < before {
					return i
				}
				return before + (i-before)%length
			}
			most := 3*max(before, length) + length + 1
			if n := read(most, func(i int) Page { return Page{fmt.Sprint(number(i)), key(i)} }); n == 0 {
				t.Errorf("%d tokens repeat after %d others: not detected in %d pages", length, before, most)
			}
			if n := read(most, func(i int) Page { return Page{fmt.Sprint(i), key(number(i))} }); n == 0 {
				t.Errorf("%d pages repeat after %d others, with new tokens: not detected in %d pages", length, before, most)
			}
		}
	}
}

func TestSameToken(t *testing.T) {
	if n := read(10, func(i int) Page { return Page{"same", key(i)} }); n != 2 {
		t.Errorf("detected at page %d", n)
	}
}

// TestProgress checks that lists that end are accepted: also one with empty pages, and one
// whose last page repeats another one.
func TestProgress(t *testing.T) {
	if n := read(1000, func(i int) Page { return Page{fmt.Sprint(i), key(i)} }); n != 0 {
		t.Errorf("page %d is refused", n)
	}
	if n := read(1000, func(i int) Page { return Page{Continue: fmt.Sprint(i)} }); n != 0 {
		t.Errorf("the empty page %d is refused", n)
	}
	if n := read(2, func(i int) Page { return []Page{{"1", key(0)}, {"", key(0)}}[i] }); n != 0 {
		t.Error("the last page is refused")
	}
}

// TestTooManyPages checks that a list of new pages without an end is refused.
func TestTooManyPages(t *testing.T) {
	if n := read(maxPages+1, func(i int) Page {
		return Page{Continue: string([]byte{byte(i), byte(i >> 8), byte(i >> 16)}) + "t"}
	}); n != maxPages {
		t.Errorf("refused at page %d", n)
	}
}
