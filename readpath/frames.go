package readpath

import (
	"slices"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/watchcache"
)

// frame is an event's bytes, for all watches: who asks for what is being encoded waits for that.
// They must not be changed.
func (s *Reader) frame(e watchcache.Event, f form) ([]byte, error) {
	return s.shared(e, encodingKey{s.number, f, e.Type, e.Revision}, func() ([]byte, error) {
		return s.appendItem(nil, e, f, passing)
	})
}

// row is that of an event, for all watches. It is the same for any kind of event.
func (s *Reader) row(e watchcache.Event) ([]byte, error) {
	return s.shared(e, encodingKey{s.number, tableJSON, "", e.Revision}, func() ([]byte, error) {
		return s.itemOf(e, tableJSON, passing)
	})
}

// ownRow is the row of an event that is for one watch alone.
func (s *Reader) ownRow(e watchcache.Event) ([]byte, error) { return s.itemOf(e, tableJSON, recurring) }

// shared is what all watches are sent of an event: encoded for the first who asks.
func (s *Reader) shared(e watchcache.Event, key encodingKey, encode func() ([]byte, error)) ([]byte, error) {
	holds := s.holder(e.Object)
	if known := holds.bytes(key, passing); known != nil {
		return known, nil
	}
	lock := s.framing.of(e.Object)
	lock.Lock()
	defer lock.Unlock()
	if known := holds.bytes(key, passing); known != nil {
		return known, nil
	}
	b, err := encode()
	if err == nil {
		holds.cacheFrame(key, b)
	}
	return b, err
}

// appendFrame appends the frame of an event that is for one watch alone.
func (s *Reader) appendFrame(b []byte, e watchcache.Event, f form) ([]byte, error) {
	return s.appendItem(b, e, f, recurring)
}

func (s *Reader) appendItem(b []byte, e watchcache.Event, f form, d demand) ([]byte, error) {
	item, err := s.itemOf(e, f, d)
	if err != nil {
		return b, err
	}
	return s.appendEvent(slices.Grow(b, len(item)+frameRoom), e.Type, item, f), nil
}

// itemOf is an event's object.
func (s *Reader) itemOf(e watchcache.Event, f form, d demand) ([]byte, error) {
	switch {
	case e.Type == watch.Bookmark:
		marker, err := s.Cache.BookmarkObject(e)
		if err != nil {
			return nil, err
		}
		return s.encode(marker, f)
	case e.Revision == e.Object.Revision():
		return s.item(e.Object, f, d)
	}
	return s.itemAt(e.Object, f, e.Revision)
}

// frameRoom is about what stands around an item in a frame.
const frameRoom = 256
