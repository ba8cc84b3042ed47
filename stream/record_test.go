package stream

import (
	"bytes"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

func TestRecordsComeBack(t *testing.T) {
	for _, r := range []record{
		{},
		{serial: 1 << 60, uid: "a-b", revision: 1<<64 - 1, doubt: keepwatch.Added, metadata: []byte(`{"metadata":{}}`)},
	} {
		got, err := decodeRecord(r.encode())
		if err != nil || got.uid != r.uid || got.revision != r.revision || got.doubt != r.doubt || !bytes.Equal(got.metadata, r.metadata) {
			t.Errorf("%+v came back as %+v, %v", r, got, err)
		}
		if serial, err := serialOf(r.encode()); serial != r.serial || err != nil {
			t.Errorf("serial %d, %v, want %d", serial, err, r.serial)
		}
	}
}

func TestKeysComeBack(t *testing.T) {
	for _, key := range []keepwatch.Key{{Name: "node-1"}, {Namespace: "kube-system", Name: "a.b"}} {
		if got := parseKey(key.String()); got != key {
			t.Errorf("%+v came back as %+v", key, got)
		}
	}
}

// FuzzDecode: any text is read or refused, and what is read is written back as
// the same.
func FuzzDecode(f *testing.F) {
	r := recordOf(at("a.1@7"), 3, schema.GroupVersionKind{})
	f.Add(r.encode())
	f.Add(intent{keepwatch.Deleted, 9, "default/a", r}.encode())
	f.Add(position{Cursor: 3, Told: 5, Relisting: true, Count: 1, Serial: 8}.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		// Seal it, so that what is behind the checksum is reached.
		for _, text := range [][]byte{text, seal(append(make([]byte, sealSize), text...))} {
			if r, err := decodeRecord(text); err == nil {
				again, err := decodeRecord(r.encode())
				if err != nil || !reflect.DeepEqual(r, again) {
					t.Errorf("record %+v came back as %+v, %v", r, again, err)
				}
			}
			if i, err := decodeIntent(text); err == nil {
				again, err := decodeIntent(i.encode())
				if err != nil || !reflect.DeepEqual(i, again) {
					t.Errorf("intent %+v came back as %+v, %v", i, again, err)
				}
			}
			if p, err := decodePosition(text); err == nil {
				again, err := decodePosition(p.encode())
				if err != nil || p != again {
					t.Errorf("position %+v came back as %+v, %v", p, again, err)
				}
			}
			_, _ = serialOf(text)
		}
	})
}
