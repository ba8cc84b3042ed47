package readpath

import (
	"errors"
	"io"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/watchcache"
)

// eventOf is the event that a feed tells of an object.
func (r *rig) eventOf(namespace, name string) watchcache.Event {
	r.t.Helper()
	return watchcache.Event{Type: watch.Modified, Object: r.held(namespace, name), Revision: r.held(namespace, name).Revision()}
}

// held is what the storage has of an object.
func (r *rig) held(namespace, name string) *watchcache.Object {
	r.t.Helper()
	o, ok := r.storage.Cache().Snapshot().Get(keepwatch.Key{Namespace: namespace, Name: name})
	if !ok {
		r.t.Fatalf("there is no %s/%s", namespace, name)
	}
	return must(r.storage.Cache().Read(o))(r.t)
}

// All who ask for an event's frame at a time get the same bytes.
func TestFramesAreShared(t *testing.T) {
	r := newRig(t, pods, options{})
	r.reach(r.create("default", "o1"))
	e := r.eventOf("default", "o1")
	for _, f := range allForms {
		got := make([][]byte, 100)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() { got[i] = must(r.reader.frame(e, f))(t) })
		}
		all.Wait()
		for i := range got {
			if &got[i][0] != &got[0][0] {
				t.Fatalf("form %d: not the same", f)
			}
		}
		differs(t, "the shared frame", got[0], must(r.reader.appendFrame(nil, e, f))(t))
	}
}

// wanting is a serializer that has to be given what it does.
type wanting struct {
	runtime.Serializer
	encode func(runtime.Object, io.Writer) error
}

func (w wanting) Encode(o runtime.Object, to io.Writer) error { return w.encode(o, to) }

// An event whose encoding fails is nobody's: no watch goes on without it, and who asks
// later tries again.
func TestFramesThatFail(t *testing.T) {
	r := newRig(t, pods, options{})
	r.reach(r.create("default", "o1"))
	e := r.eventOf("default", "o1")
	works := r.reader.json
	for name, fails := range map[string]func(runtime.Object, io.Writer) error{
		"by an error": func(runtime.Object, io.Writer) error { return errGone },
		"by a panic":  func(runtime.Object, io.Writer) error { panic(errGone) },
	} {
		calls := 0
		r.reader.json = wanting{works, func(o runtime.Object, to io.Writer) error {
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
			if b, err := r.reader.frame(e, metadataJSON); err == nil {
				t.Errorf("%s: %q and no error", name, b)
			}
		}()
		if b, err := r.reader.frame(e, metadataJSON); err != nil || len(b) == 0 {
			t.Errorf("%s, and then: %q, %v", name, b, err)
		}
		r.held("default", "o1").Attached().(*holder).drop()
	}
}
