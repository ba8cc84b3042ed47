package stream

import (
	"bytes"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

func TestRecordRoundTrip(t *testing.T) {
	for _, r := range []record{
		{},
		{serial: 1 << 60, uid: "a-b", revision: 1<<64 - 1, doubt: keepwatch.Added, metadata: []byte(`{"metadata":{}}`)},
	} {
		got, err := decodeRecord(r.encode())
		if err != nil || got.uid != r.uid || got.revision != r.revision || got.doubt != r.doubt ||
			!bytes.Equal(got.metadata, r.metadata) {
			t.Errorf("%+v was decoded as %+v, %v", r, got, err)
		}
		if serial, err := serialOf(r.encode()); serial != r.serial || err != nil {
			t.Errorf("serial %d, %v, want %d", serial, err, r.serial)
		}
	}
}

func TestKeyRoundTrip(t *testing.T) {
	for _, key := range []keepwatch.Key{{Name: "node-1"}, {Namespace: "kube-system", Name: "a.b"}} {
		if got := parseKey(key.String()); got != key {
			t.Errorf("%+v was decoded as %+v", key, got)
		}
	}
}

// TestStoredPosition decodes a position of format 1 as its first build has written it. A
// JSON name of position that changes without a new format number would be read as zero.
func TestStoredPosition(t *testing.T) {
	body := `{"cursor":10,"told":13,"relisting":true,"void":"rewind","count":2,"serial":7}`
	want := position{Cursor: 10, Delivered: 13, Relisting: true, Invalid: keepwatch.GapRewind, Count: 2, Serial: 7}
	text := putChecksum(append(make([]byte, checksumSize), body...))
	if got, err := decodePosition(text); err != nil || got != want {
		t.Errorf("decoded %+v, %v, want %+v", got, err, want)
	}
	if got := want.encode(); !bytes.Equal(got, text) {
		t.Errorf("encoded %s, want %s", got, text)
	}
}

// FuzzDecode checks that any text is decoded or refused, and that a decoded value is
// encoded and decoded as the same.
func FuzzDecode(f *testing.F) {
	r := recordOf(at("a.1@7"), 3, schema.GroupVersionKind{})
	f.Add(r.encode())
	f.Add(intent{kind: keepwatch.Deleted, revision: 9, key: "default/a", record: r, difference: true}.encode())
	f.Add(position{Cursor: 3, Delivered: 5, Relisting: true, Count: 1, Serial: 8}.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		// With a checksum, so that the decoders read the rest.
		for _, text := range [][]byte{text, putChecksum(append(make([]byte, checksumSize), text...))} {
			if r, err := decodeRecord(text); err == nil {
				again, err := decodeRecord(r.encode())
				if err != nil || !reflect.DeepEqual(r, again) {
					t.Errorf("record %+v was decoded as %+v, %v", r, again, err)
				}
			}
			if i, err := decodeIntent(text); err == nil {
				again, err := decodeIntent(i.encode())
				if err != nil || !reflect.DeepEqual(i, again) {
					t.Errorf("intent %+v was decoded as %+v, %v", i, again, err)
				}
			}
			if p, err := decodePosition(text); err == nil {
				again, err := decodePosition(p.encode())
				if err != nil || p != again {
					t.Errorf("position %+v was decoded as %+v, %v", p, again, err)
				}
			}
			_, _ = serialOf(text)
		}
	})
}
