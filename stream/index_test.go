package stream

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
)

func openIndex(t *testing.T, dir string) *Index {
	t.Helper()
	x, err := OpenIndex(dir, testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

func TestIndex(t *testing.T) {
	dir := t.TempDir()
	fillState(t, dir, 12)
	before := content(t, dir)
	x := openIndex(t, dir)
	if x.Revision() != 12 || x.Len() != 12 {
		t.Errorf("%d objects at %v", x.Len(), x.Revision())
	}
	var last keepwatch.Key
	count := 0
	err := x.Objects(func(o Object) error {
		if count++; count > 1 && last.Compare(o.Key()) >= 0 {
			t.Errorf("%v follows %v", o.Key(), last)
		}
		last = o.Key()
		if want := fmt.Sprintf("%s.1@%d", last.Name, o.Revision()); string(o.Metadata()) != string(at(want).Metadata()) ||
			o.UID() != at(want).uid {
			t.Errorf("%v is %s", last, o.Metadata())
		}
		return nil
	})
	if err != nil || count != 12 {
		t.Errorf("%d objects, %v", count, err)
	}
	stop := errors.New("enough")
	if err := x.Objects(func(Object) error { return stop }); err != stop {
		t.Errorf("error %v", err)
	}
	if o, ok, err := x.Get(keepwatch.Key{Namespace: "default", Name: "a3"}); err != nil || !ok || o.Revision() != 4 {
		t.Errorf("%v, %v, %v", o, ok, err)
	}
	if _, ok, err := x.Get(keepwatch.Key{Namespace: "default", Name: "x"}); err != nil || ok {
		t.Errorf("an announced object is in the index: %v, %v", ok, err)
	}
	second := openIndex(t, dir) // readers do not exclude each other
	if second.Len() != 12 {
		t.Errorf("%d objects", second.Len())
	}
	if _, err := Open(dir, testIdentity); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a stream opened the state of a reader: %v", err)
	}
	if err := errors.Join(x.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(content(t, dir), before) {
		t.Error("the file was changed")
	}
}

// TestIndexRefused checks that a state without a state of one revision is refused, and is not changed.
func TestIndexRefused(t *testing.T) {
	in := func(prepare func(t *testing.T, dir string)) string {
		dir := t.TempDir()
		prepare(t, dir)
		return dir
	}
	closed := func(t *testing.T, d *disk) {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	filled := in(func(t *testing.T, dir string) { fillState(t, dir, 3) })
	other := testIdentity
	other.Resource = "others"
	used := in(func(t *testing.T, dir string) { openDisk(t, dir) })
	tests := []struct {
		name, dir string
		id        Identity
		want      string
	}{
		{"no folder", filepath.Join(t.TempDir(), "none"), testIdentity, "no such file"},
		{"no file", t.TempDir(), testIdentity, "no such file"},
		{"another stream", filled, other, "belongs to another stream"},
		{"a stream has it", used, testIdentity, "in use by another keepwatch"},
		{"before the first list", in(func(t *testing.T, dir string) { closed(t, openDisk(t, dir)) }), testIdentity,
			"first list is not complete"},
		{"within a gap", in(func(t *testing.T, dir string) {
			fillState(t, dir, 3)
			d := openDisk(t, dir)
			next := d.committed
			next.Relisting = true
			if err := d.commit(commit{position: next}); err != nil {
				t.Fatal(err)
			}
			closed(t, d)
		}), testIdentity, "behind the gap at revision 3 is not complete"},
		{"truncated", in(func(t *testing.T, dir string) {
			fillState(t, dir, 3)
			if err := os.Truncate(filepath.Join(dir, fileName), 4096); err != nil {
				t.Fatal(err)
			}
		}), testIdentity, "is damaged"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x, err := OpenIndex(tt.dir, tt.id)
			if err == nil {
				_ = x.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q does not contain %q", err, tt.want)
			}
			if entries, err := os.ReadDir(tt.dir); err == nil && tt.want == "no such file" && len(entries) > 0 {
				t.Errorf("the folder has %v", entries)
			}
		})
	}
}
