package readpath

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// ListEncodingUsed reports each encoding of repeated large lists once. After Warm, a list in that encoding
// encodes no object.
func TestWarm(t *testing.T) {
	before := newRig(t, pods, options{})
	const size = 3000
	for i := range 70 {
		before.waitFor(before.create("default", fmt.Sprintf("o%02d", i), withNote(strings.Repeat("x", size))))
	}
	var reported []ListEncoding
	before.reader.resource.ListEncodingUsed = func(e ListEncoding) { reported = append(reported, e) }
	list := func(r *rig, f encoding, encoding string) []byte {
		answer, body := r.get(r.path(""), accept(accepted(f, asList), "Accept-Encoding", encoding))
		return unzipped(t, answer, body)
	}
	for _, f := range []encoding{objectJSON, metadataJSON, objectJSON} {
		list(before, f, "identity") // the first one is not reported
		for _, encoding := range []string{"identity", "gzip"} {
			list(before, f, encoding)
			before.get(before.path("")+"?limit=1", accept(accepted(f, asList), "Accept-Encoding", encoding)) // not a large list
		}
	}
	if want := []ListEncoding{"json", "json+gzip", "metadata-json", "metadata-json+gzip"}; !slices.Equal(reported, want) {
		t.Errorf("reported: %v, want %v", reported, want)
	}
	for _, e := range append(reported, "table", "from another version") {
		r := newRig(t, pods, options{db: before.db})
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
		encoding, most := "identity", 0
		if zipped { // of whose objects the blocks are cached; the first ones show that the list is large
			encoding, most = "gzip", gzipFrom/size
		}
		got := list(r, f, encoding)
		if made := count.encoded.Load(); made > int64(most) {
			t.Errorf("%s: %d objects are encoded for the first list", e, made)
		}
		expectBytes(t, string(e), got, list(before, f, "identity"))
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	r := newRig(t, pods, options{db: before.db})
	count := &counting{Serializer: r.reader.json}
	r.reader.json = count
	if r.reader.Warm(stopped, "json"); count.encoded.Load() >= 70 {
		t.Error("Warm continues after its context has ended")
	}
}
