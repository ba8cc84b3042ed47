package ndjson

import (
	"fmt"
	"strings"
	"testing"
)

func event(kind, uid string, revision int) string {
	id := fmt.Sprintf("%s/%d", uid, revision)
	if kind == "DELETED" {
		id += "/deleted"
	}
	name, _, _ := strings.Cut(uid, ".")
	return fmt.Sprintf(`{"type":%q,"revision":"%d","id":%q,"resource":"pods","object":{"apiVersion":"v1","kind":"Pod",`+
		`"metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"}}}`, kind, revision, id, name, uid, revision)
}

// TestRewind folds a stream whose source was restored twice, to a time when a had a state
// that the consumer has received before and b existed. It fails if a rewind does not clear
// the seen ids.
func TestRewind(t *testing.T) {
	lines := []string{
		event("ADDED", "a.1", 4), event("ADDED", "b.1", 5),
		`{"type":"SYNCED","revision":"5","count":2}`,
		event("MODIFIED", "a.1", 8), event("DELETED", "b.1", 9),
		event("MODIFIED", "a.1", 8), // repeated
		`{"type":"GAP","from":"9","to":"6","reason":"rewind"}`,
		event("MODIFIED", "a.1", 4), event("ADDED", "b.1", 5),
		`{"type":"SYNCED","revision":"6","count":2}`,
		event("DELETED", "b.1", 9),
		`{"type":"GAP","from":"9","to":"6","reason":"rewind"}`,
		event("ADDED", "b.1", 5),
		`{"type":"SYNCED","revision":"6","count":2}`,
	}
	f := NewFold()
	if err := f.Read(strings.NewReader(strings.Join(lines, "\n") + "\n")); err != nil {
		t.Fatal(err)
	}
	if len(f.Wrong) > 0 {
		t.Errorf("%q", f.Wrong)
	}
	if a, b := f.Objects["/a"].Revision, f.Objects["/b"].Revision; a != "4" || b != "5" || f.Repeats != 1 {
		t.Errorf("a at %s, b at %s, %d repeated", a, b, f.Repeats)
	}
}
