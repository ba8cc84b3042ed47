package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/store"
)

// decoded is an object with a decoded value.
type decoded struct {
	*etcd.Object
	text string
}

var errGarbled = errors.New("garbled")

func decode(o *etcd.Object, value []byte) (keepwatch.Object, error) {
	text := string(value)
	if strings.HasPrefix(text, "!") {
		return nil, errGarbled
	}
	return &decoded{o, text}, nil
}

// An undecodable object is part of list and history in its order, and has its identity.
func TestDecode(t *testing.T) {
	w := newFixture(t, etcd.Options{Decode: decode})
	w.put(t, "a", "1")
	w.put(t, "b", "!1")
	cache := store.New(store.Options{})
	startReflector(t, w.Source, cache, reflector.Options{})
	first := waitForRevision(t, cache, must(w.Newest(t.Context()))(t))
	consumer := cache.Watch(first.Cursor(), store.Filter{})
	w.put(t, "a", "!2")
	w.put(t, "b", "2")
	w.put(t, "c", "!1")
	w.delete(t, "c")
	end := w.put(t, "a", "3")

	text := func(o keepwatch.Object) string {
		switch o := o.(type) {
		case *decoded:
			if o.Value() != nil {
				t.Errorf("%s has its value twice", o.Key())
			}
			return o.text
		case *etcd.Undecodable:
			return fmt.Sprintf("%v %s", o.Err, o.Value())
		}
		return fmt.Sprintf("%T", o)
	}
	var got []string
	for o := range first.All() {
		got = append(got, fmt.Sprintf("%s=%s", o.Key(), text(o)))
	}
	for consumer.Cursor().Revision < end {
		for _, c := range must(consumer.Next(t.Context()))(t).(keepwatch.Batch).Changes {
			got = append(got, fmt.Sprintf("%s %s=%s", c.Type, c.Object.Key(), text(c.Object)))
		}
	}
	want := "a=1, b=garbled !1, MODIFIED a=garbled !2, MODIFIED b=2, ADDED c=garbled !1, DELETED c=garbled !1, MODIFIED a=3"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("got %s,\nwant %s", s, want)
	}
}

// An object from Decode without the identity of its key is refused.
func TestDecodeMustPreserveIdentity(t *testing.T) {
	for name, f := range map[string]func(o *etcd.Object) keepwatch.Object{
		"nil": func(*etcd.Object) keepwatch.Object { return nil },
		"uid": func(o *etcd.Object) keepwatch.Object { return renamed{o, o.Key(), "uid", o.Revision()} },
		"key": func(o *etcd.Object) keepwatch.Object {
			return renamed{o, keepwatch.Key{Name: "b"}, o.UID(), o.Revision()}
		},
		"revision": func(o *etcd.Object) keepwatch.Object { return renamed{o, o.Key(), o.UID(), 1} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, etcd.Options{Decode: func(o *etcd.Object, _ []byte) (keepwatch.Object, error) {
				return f(o), nil
			}})
			from := w.put(t, "ns/a", "1")
			_, err := w.List(t.Context(), keepwatch.ListRequest{})
			wantKind(t, err, keepwatch.InvariantViolation)
			watch := w.watch(t, from)
			w.put(t, "ns/a", "2")
			wantKind(t, readToEnd(t, watch), keepwatch.InvariantViolation)
		})
	}
}

type renamed struct {
	*etcd.Object
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
}

func (r renamed) Key() keepwatch.Key           { return r.key }
func (r renamed) UID() keepwatch.UID           { return r.uid }
func (r renamed) Revision() keepwatch.Revision { return r.revision }

// Equal compares values: after a rewind two objects may have equal revisions and differ.
func TestEqual(t *testing.T) {
	w := newFixture(t, etcd.Options{Decode: decode})
	for key, value := range map[string]string{"a": "1", "b": "1", "c": "2", "d": "!1", "e": "!1"} {
		w.put(t, key, value)
	}
	objects, _ := list(t, w)
	again, _ := list(t, w)
	equal := func(i, j int) bool { return objects[i].(store.Equaler).Equal(again[j]) }
	if !equal(0, 0) || !equal(0, 1) || equal(0, 2) || equal(0, 3) || !equal(3, 4) {
		t.Error("objects are not compared by their values")
	}
	if objects[0].(store.Equaler).Equal(other{}) {
		t.Error("an object equals another source's")
	}
}

type other struct{ keepwatch.Object }

var (
	_ store.Versioned = (*etcd.Object)(nil)
	_ store.Equaler   = (*etcd.Object)(nil)
)

// lossy is a source whose watches lose a change, as etcd has done (etcd #17529).
type lossy struct {
	*etcd.Source
	drop func(keepwatch.Change) bool
}

type lossyWatch struct {
	keepwatch.Watch
	lossy
}

func (l lossy) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	w, err := l.Source.Watch(ctx, from)
	return lossyWatch{w, l}, err
}

func (w lossyWatch) Next() (keepwatch.Batch, error) {
	b, err := w.Watch.Next()
	b.Changes = slices.DeleteFunc(b.Changes, w.drop)
	return b, err
}

// The version of a key's next change shows that a change was lost.
func TestLostChangeIsDetected(t *testing.T) {
	w := newFixture(t, etcd.Options{Decode: decode})
	from := w.put(t, "a", "1")
	cache := store.New(store.Options{})
	r := startReflector(t, lossy{w.Source, func(c keepwatch.Change) bool { return c.Revision == from+1 }}, cache,
		reflector.Options{Paged: true})
	waitForRevision(t, cache, from)
	w.put(t, "a", "2")
	end := w.put(t, "a", "3")
	await.True(t, "a relist", func() bool { return r.Progress().Relists[keepwatch.ProtocolViolation] == 1 })
	o, _ := waitForRevision(t, cache, end).Get(keepwatch.Key{Name: "a"})
	if got := o.(*decoded); got.text != "3" || got.Revision() != end {
		t.Errorf("the store has %s at %d", got.text, got.Revision())
	}
}
