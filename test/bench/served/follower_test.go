package served

import (
	"slices"
	"testing"
)

// The revisions are read wherever the answer is cut into pieces.
func TestRawWatcherReadsRevisions(t *testing.T) {
	text := []byte(`{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"17","annotations":{"x":"\"resourceVersion\":\"99\""}}}}
{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"23"}}}
`)
	expired := []byte(`{"type":"ERROR","object":{"kind":"Status","metadata":{"resourceVersion":"9"},"reason":"Expired","code":410}}
`)
	for n := 1; n <= len(text); n++ {
		w := &rawWatcher{}
		var seen []int64
		for piece := range slices.Chunk(text, n) {
			w.take(piece)
			if now := w.seen(); now != 0 && !slices.Contains(seen, now) {
				seen = append(seen, now)
			}
		}
		if w.seen() != 23 || n < 50 && !slices.Equal(seen, []int64{17, 23}) {
			t.Fatalf("in pieces of %d: %v", n, seen)
		}
		for piece := range slices.Chunk(expired, n) {
			w.take(piece)
		}
		if !w.expired || w.seen() != 23 {
			t.Fatalf("in pieces of %d: expired %v at %d", n, w.expired, w.seen())
		}
	}
}
