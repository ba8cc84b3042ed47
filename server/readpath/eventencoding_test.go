package readpath

import (
	"errors"
	"io"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// eventOf returns the event of an object's newest state.
func (r *rig) eventOf(namespace, name string) watchcache.Event {
	r.t.Helper()
	return watchcache.Event{Type: watch.Modified, Object: r.cachedObject(namespace, name),
		Revision: r.cachedObject(namespace, name).Revision()}
}

// cachedObject returns the newest state of an object.
func (r *rig) cachedObject(namespace, name string) *watchcache.Object {
	r.t.Helper()
	o, ok := r.storage.Cache().Snapshot().Get(keepwatch.Key{Namespace: namespace, Name: name})
	if !ok {
		r.t.Fatalf("%s/%s does not exist", namespace, name)
	}
	return must(r.storage.Cache().Read(o))(r.t)
}

// Watches that need an event's encoding at the same time receive the same bytes.
func TestEventEncodingsAreShared(t *testing.T) {
	r := newRig(t, pods, options{})
	r.waitFor(r.create("default", "o1"))
	e := r.eventOf("default", "o1")
	for _, f := range allEncodings {
		got := make([][]byte, 100)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() { got[i] = must(r.reader.eventEncoding(e, f))(t) })
		}
		all.Wait()
		for i := range got {
			if &got[i][0] != &got[0][0] {
				t.Fatalf("encoding %d: not the same", f)
			}
		}
		expectBytes(t, "the shared encoding", got[0], must(r.reader.appendEncodedEvent(nil, e, f, singleRead))(t))
	}
}

// One change is ADDED for a watch whose selector the object begins to match, and MODIFIED for another one: each
// receives its own type, also after the encoding for the other one was cached.
func TestEventEncodingsHaveTheirType(t *testing.T) {
	r := newRig(t, pods, options{})
	r.waitFor(r.create("default", "o1"))
	e := r.eventOf("default", "o1")
	for _, f := range allEncodings {
		for _, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Added} {
			e.Type = kind
			want := must(r.reader.appendEncodedEvent(nil, e, f, singleRead))(t)
			expectBytes(t, string(kind), must(r.reader.eventEncoding(e, f))(t), want)
			expectBytes(t, string(kind)+", compressed", gunzip(t, must(r.reader.eventMember(e, f))(t)), want)
		}
	}
}

// stubSerializer is a serializer whose Encode is given by the test.
type stubSerializer struct {
	runtime.Serializer
	encode func(runtime.Object, io.Writer) error
}

func (w stubSerializer) Encode(o runtime.Object, to io.Writer) error { return w.encode(o, to) }

// An event that can't be encoded is not cached: the next watch tries again.
func TestEventEncodingsThatFail(t *testing.T) {
	r := newRig(t, pods, options{})
	r.waitFor(r.create("default", "o1"))
	e := r.eventOf("default", "o1")
	works := r.reader.json
	for name, fails := range map[string]func(runtime.Object, io.Writer) error{
		"by an error": func(runtime.Object, io.Writer) error { return errGone },
		"by a panic":  func(runtime.Object, io.Writer) error { panic(errGone) },
	} {
		calls := 0
		r.reader.json = stubSerializer{works, func(o runtime.Object, to io.Writer) error {
			calls++
			if calls == 1 {
				return fails(o, to)
			}
			return works.Encode(o, to)
		}}
		func() {
			defer func() {
				if p := recover(); p != nil && !errors.Is(p.(error), errGone) {
					t.Errorf("%s: %v", name, p)
				}
			}()
			if b, err := r.reader.eventEncoding(e, metadataJSON); err == nil {
				t.Errorf("%s: %q and no error", name, b)
			}
		}()
		if b, err := r.reader.eventEncoding(e, metadataJSON); err != nil || len(b) == 0 {
			t.Errorf("%s, and then: %q, %v", name, b, err)
		}
		r.cachedObject("default", "o1").Attached().(*handle).drop()
	}
}
