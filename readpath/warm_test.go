package readpath

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What was asked for in large lists is told once, and what it says can be encoded before anybody
// asks for it: a list is then there as it stands.
func TestWarm(t *testing.T) {
	before := newRig(t, pods, options{})
	for i := range 70 {
		before.waitFor(before.create("default", fmt.Sprintf("o%02d", i), withNote(strings.Repeat("x", 3000))))
	}
	var told []ListEncoding
	before.reader.ListEncodingUsed = func(e ListEncoding) { told = append(told, e) }
	ask := func(r *rig, f encoding, encoding string) []byte {
		answer, body := r.get(r.path(""), accept(accepted(f, asList), "Accept-Encoding", encoding))
		return unzipped(t, answer, body)
	}
	for _, f := range []encoding{objectJSON, metadataJSON, objectJSON} {
		for _, encoding := range []string{"identity", "gzip"} {
			ask(before, f, encoding)
			before.get(before.path("")+"?limit=1", accept(accepted(f, asList), "Accept-Encoding", encoding)) // which is not large
		}
	}
	if want := []ListEncoding{"json", "json+gzip", "metadata-json", "metadata-json+gzip"}; !slices.Equal(told, want) {
		t.Errorf("told are %v, want %v", told, want)
	}
	for _, e := range append(told, "table", "from another version") {
		r := newRig(t, pods, options{prefix: before.prefix})
		count := &counting{Serializer: r.reader.json}
		r.reader.json = count
		r.reader.Warm(t.Context(), e)
		f, zipped, known := r.reader.parseListEncoding(e)
		if made := count.encoded.Load(); known != (made > 0) || known != (e != "from another version") {
			t.Errorf("%s: known is %v, and %d objects are encoded", e, known, made)
		}
		if !known {
			continue
		}
		count.encoded.Store(0)
		encoding := "identity"
		if zipped {
			encoding = "gzip"
		}
		got := ask(r, f, encoding)
		if made := count.encoded.Load(); made > 0 {
			t.Errorf("%s: %d objects are encoded for the first list", e, made)
		}
		expectBytes(t, string(e), got, ask(before, f, "identity"))
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	r := newRig(t, pods, options{prefix: before.prefix})
	count := &counting{Serializer: r.reader.json}
	r.reader.json = count
	if r.reader.Warm(stopped, "json"); count.encoded.Load() >= 70 {
		t.Error("it goes on when it is asked to end")
	}
}
