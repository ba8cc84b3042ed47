package readpath

import (
	"errors"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/storage"
)

// recent is how many frames are kept: what watches that keep up are sent at the same
// time.
const recent = 1024

// frames lets all watches that are sent the same event share its bytes. The zero
// value is ready for use.
type frames struct {
	mu    sync.Mutex
	known map[told]*frame
	order [recent]told // of known's keys, a ring
	next  int
}

// told is an event in one form.
type told struct {
	object   *storage.Object
	revision keepwatch.Revision
	kind     watch.EventType
	form     form
}

// frame is made by who asks for it first.
type frame struct {
	once  sync.Once
	bytes []byte
	err   error
}

func (f *frames) of(t told) *frame {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.known[t]; known != nil {
		return known
	}
	if f.known == nil {
		f.known = make(map[told]*frame, recent)
	}
	delete(f.known, f.order[f.next])
	fresh := &frame{}
	f.known[t], f.order[f.next] = fresh, t
	f.next = (f.next + 1) % recent
	return fresh
}

// forget drops what could not be made.
func (f *frames) forget(t told, failed *frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known[t] == failed {
		delete(f.known, t)
	}
}

// frame is an event's bytes, for all watches. They must not be changed.
func (s *Reader) frame(e storage.Event, f form) ([]byte, error) {
	key := told{e.Object, e.Revision, e.Type, f}
	shared := s.frames.of(key)
	defer func() {
		if shared.err != nil {
			s.frames.forget(key, shared) // who asks next tries again
		}
	}()
	shared.once.Do(func() {
		shared.err = errPanicked
		shared.bytes, shared.err = s.appendFrame(nil, e, f)
	})
	return shared.bytes, shared.err
}

// errPanicked is what the others get when who framed first did not survive it.
var errPanicked = errors.New("encoding this event failed for another watch")

// appendFrame appends an event's frame.
func (s *Reader) appendFrame(b []byte, e storage.Event, f form) ([]byte, error) {
	var item []byte
	var err error
	if e.Revision == e.Object.Revision() {
		item, err = s.item(e.Object, f)
	} else {
		item, err = s.itemAt(e.Object, f, e.Revision)
	}
	if err != nil {
		return b, err
	}
	return s.appendEvent(slices.Grow(b, len(item)+frameRoom), e.Type, item, f), nil
}

// frameRoom is about what stands around an item in a frame.
const frameRoom = 256

// mark frames a bookmark.
func (s *Reader) mark(e storage.Event, f form) ([]byte, error) {
	marker, err := s.Storage.Marker(e)
	if err != nil {
		return nil, err
	}
	item, err := s.encode(marker, f)
	if err != nil {
		return nil, err
	}
	return s.appendEvent(nil, watch.Bookmark, item, f), nil
}
