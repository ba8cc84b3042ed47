package readpath

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// The first large list in an encoding, and the initial state of the first watch, leave nothing of it in memory but what
// a small list would; the next one does. Compressed blocks stay at once.
func TestFirstListIsNotCached(t *testing.T) {
	for _, form := range []struct {
		as    encoding
		zip   string
		query string
		all   int // how many are cached by the second, at least
	}{
		{objectJSON, "identity", "", 500}, {objectJSON, "identity", "?limit=400", 400}, {metadataJSON, "identity", "", 500},
		{tableJSON, "identity", "", 500}, {objectJSON, "gzip", "", 0}, {tableJSON, "gzip", "", 500},
		{objectJSON, "identity", "?pretty=1", 500},
		{objectJSON, "identity", "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&" +
			"resourceVersionMatch=NotOlderThan&timeoutSeconds=1", 500},
	} {
		t.Run(fmt.Sprint(form.as, form.zip, form.query), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, pods, options{})
				const objects, size = 500, 4000
				for i := range objects {
					r.create("default", fmt.Sprintf("o%03d", i), withNote(strings.Repeat("x", size)))
				}
				count := func() (cached int) {
					for i := range objects {
						if r.isCached(fmt.Sprintf("o%03d", i), form.as) {
							cached++
						}
					}
					return cached
				}
				read := func() {
					answer := r.ask(r.path("")+form.query, accept(accepted(form.as, asList), "Accept-Encoding", form.zip))
					if answer.Code != 200 {
						t.Fatal(answer.Code)
					}
				}
				read()
				if n := count(); n > gzipFrom/size+1 { // those of a small list
					t.Errorf("%d encodings are cached by the first list", n)
				}
				if blocks := r.blocks(); (blocks > 0) != (form.zip == "gzip" && form.as == objectJSON) {
					t.Errorf("%d bytes of blocks are cached by the first list", blocks)
				}
				read()
				if n := count(); n < form.all {
					t.Errorf("%d encodings are cached by the second list, want %d", n, form.all)
				}
			})
		})
	}
}

// A watch that begins with few objects is no large list, which the next one would repeat.
func TestSmallInitialStatesAreNoLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pods, options{})
		r.waitFor(r.create("default", "o1"))
		answer := r.ask(r.path("")+"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&"+
			"resourceVersionMatch=NotOlderThan&timeoutSeconds=1", accept("application/json"))
		if answer.Code != 200 {
			t.Fatal(answer.Code)
		}
		if last := r.reader.listings.of[objectJSON].last; !last.IsZero() {
			t.Error("it is recorded as a list")
		}
		if !r.isCached("o1", objectJSON) {
			t.Error("its encoding is not shared with the next watch")
		}
	})
}

// The pages of the first listing cache nothing, those of the second do.
func TestPagesOfTheFirstListing(t *testing.T) {
	r := newRig(t, pods, options{})
	const objects = 400
	for i := range objects {
		r.create("default", fmt.Sprintf("o%03d", i), withNote(strings.Repeat("x", 4000)))
	}
	for listing, want := range []bool{false, true} {
		for token, more := "", true; more; {
			_, body := r.get(r.path("")+"?limit=100&continue="+token, accept("application/json"))
			_, rest, ok := strings.Cut(string(body), `"continue":"`)
			token, _, _ = strings.Cut(rest, `"`)
			more = ok
		}
		if last := r.isCached(fmt.Sprintf("o%03d", objects-1), objectJSON); last != want {
			t.Errorf("listing %d: the last object is cached: %v", listing, last)
		}
	}
}

// A list repeats another one within the time, of which it is no page. The twin keeps all lists.
func TestListings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const within = 10
		type list struct {
			at        int
			revision  keepwatch.Revision
			continued bool
		}
		var all []list
		l, now := &listings{}, 1
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) { now += rapid.IntRange(1, 2*within).Draw(t, "for") },
			"list": func(t *rapid.T) {
				one := list{now, keepwatch.Revision(rapid.IntRange(1, 2).Draw(t, "revision")), rapid.Bool().Draw(t, "page")}
				all = append(all, one)
				first := len(all) - 1
				for first > 0 && all[first].at-all[first-1].at <= within {
					first--
				}
				want := false
				for _, later := range all[first+1:] {
					want = want || !later.continued || later.revision != all[first].revision
				}
				got := l.add(objectJSON, one.revision, one.continued, time.Unix(int64(now), 0), within*time.Second)
				if got != want {
					t.Fatalf("%v: repeated is %v", all, got)
				}
			},
		})
	})
}
