package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/server/readpath"
)

// Recent encodings outlive a restart: the newest first, once each, up to a limit. A damaged file
// does not prevent a start.
func TestRecentEncodingsOutliveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encodings.json")
	resource := func(i int) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprint("r", i)}
	}
	first := newRecentEncodings()
	if err := first.load(path); err != nil {
		t.Errorf("without a file: %v", err)
	}
	for i := range 2 * maxRecentEncodings {
		first.Recorder(resource(i))("json")
		first.Recorder(resource(i))("json")
	}
	if err := first.save(path); err != nil {
		t.Fatal(err)
	}
	second := newRecentEncodings()
	if err := second.load(path); err != nil {
		t.Fatal(err)
	}
	if n := len(second.pending); n != maxRecentEncodings {
		t.Errorf("%d lists are to be encoded, want %d", n, maxRecentEncodings)
	}
	for i, got := range second.pending {
		if want := (resourceEncoding{resource(2*maxRecentEncodings - 1 - i), "json"}); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	if reader, _ := second.next(); reader != nil {
		t.Error("next returns a reader before one was added")
	}
	last := second.pending[maxRecentEncodings-1]
	added := &readpath.Reader{}
	second.AddReader(last.GroupVersionResource, added)
	if reader, encoding := second.next(); reader != added || encoding != "json" {
		t.Errorf("%p %q, want %p", reader, encoding, added)
	}
	if reader, _ := second.next(); reader != nil {
		t.Error("a list is encoded twice")
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newRecentEncodings().load(path); err == nil {
		t.Error("a damaged file is not an error")
	}
}
