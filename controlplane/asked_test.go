package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/readpath"
)

// What was asked for is known over a restart, the newest first, once each, and no more than is
// worth it; a file that is damaged is no reason not to start.
func TestAskedIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asked.json")
	resource := func(i int) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprint("r", i)}
	}
	first := newAsked()
	if err := first.load(path); err != nil {
		t.Errorf("there is no file: %v", err)
	}
	for i := range 2 * mostAsked {
		first.of(resource(i))("json")
		first.of(resource(i))("json")
	}
	if err := first.save(path); err != nil {
		t.Fatal(err)
	}
	second := newAsked()
	if err := second.load(path); err != nil {
		t.Fatal(err)
	}
	if n := len(second.waiting); n != mostAsked {
		t.Errorf("%d are to be encoded, want %d", n, mostAsked)
	}
	for i, one := range second.waiting {
		if want := (askedFor{resource(2*mostAsked - 1 - i), "json"}); one != want {
			t.Errorf("%d: %v, want %v", i, one, want)
		}
	}
	if reader, _ := second.next(); reader != nil {
		t.Error("there is a reader of nothing")
	}
	last := second.waiting[mostAsked-1]
	made := &readpath.Reader{}
	second.add(last.GroupVersionResource, made)
	if reader, encoding := second.next(); reader != made || encoding != "json" {
		t.Errorf("%p %q, want %p", reader, encoding, made)
	}
	if reader, _ := second.next(); reader != nil {
		t.Error("it is encoded twice")
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newAsked().load(path); err == nil {
		t.Error("a damaged file is not noticed")
	}
}
