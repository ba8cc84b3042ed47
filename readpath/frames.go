package readpath

import (
	"slices"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/recent"
	"github.com/keepwatch/keepwatch/storage"
)

const (
	// recentFrames and recentBytes bound the frames that are kept: what watches that keep
	// up are sent at the same time.
	recentFrames = 1024
	recentBytes  = 16 << 20
)

// told is an event in one form. A row is the same for any kind of event.
type told struct {
	object   *storage.Object
	revision keepwatch.Revision
	kind     watch.EventType
	form     form
}

func newFrames() *recent.Cache[told, []byte] {
	return recent.New[told](recentFrames, recentBytes, func(frame []byte) int64 { return int64(len(frame)) })
}

// frame is an event's bytes, for all watches. They must not be changed.
func (s *Reader) frame(e storage.Event, f form) ([]byte, error) {
	return s.frames.Of(told{e.Object, e.Revision, e.Type, f}, func() ([]byte, error) { return s.appendFrame(nil, e, f) })
}

// appendFrame appends an event's frame.
func (s *Reader) appendFrame(b []byte, e storage.Event, f form) ([]byte, error) {
	item, err := s.itemOf(e, f)
	if err != nil {
		return b, err
	}
	return s.appendEvent(slices.Grow(b, len(item)+frameRoom), e.Type, item, f), nil
}

// itemOf is an event's object.
func (s *Reader) itemOf(e storage.Event, f form) ([]byte, error) {
	switch {
	case e.Type == watch.Bookmark:
		marker, err := s.Storage.Marker(e)
		if err != nil {
			return nil, err
		}
		return s.encode(marker, f)
	case e.Revision == e.Object.Revision():
		return s.item(e.Object, f)
	}
	return s.itemAt(e.Object, f, e.Revision)
}

// frameRoom is about what stands around an item in a frame.
const frameRoom = 256
