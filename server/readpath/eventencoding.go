package readpath

import (
	"encoding/json"
	"errors"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// eventOverhead is about how many bytes an event's encoding has beside its item encoding.
const eventOverhead = 256

// maxEventOverhead bounds them: they name the event's type, and the object's kind and version, whose names are at most
// 63 bytes long, and their group, a DNS name.
const maxEventOverhead = 1 << 10

// eventEncoding returns the encoding of an event, which all watches share. It never changes.
func (s *Reader) eventEncoding(e watchcache.Event, as encoding) ([]byte, error) {
	return s.sharedEncoding(e, encodingKey{s.id, as, false, e.Type, e.Revision}, func() ([]byte, error) {
		return s.appendEncodedEvent(nil, e, as, singleRead)
	})
}

// eventMember returns the encoding of an event as a gzip member, which all compressed watches share.
func (s *Reader) eventMember(e watchcache.Event, as encoding) ([]byte, error) {
	return s.sharedEncoding(e, encodingKey{s.id, as, true, e.Type, e.Revision}, func() ([]byte, error) {
		event, err := s.appendEncodedEvent(nil, e, as, singleRead)
		if err != nil {
			return nil, err
		}
		return appendMember(nil, compress(event)), nil
	})
}

// eventRow returns the row of an event's object, which all watches share. Events of each type have
// the same one.
func (s *Reader) eventRow(e watchcache.Event, as encoding) ([]byte, error) {
	return s.sharedEncoding(e, encodingKey{s.id, as, false, "", e.Revision}, func() ([]byte, error) {
		return s.eventItem(e, as, singleRead)
	})
}

// sharedEncoding returns a cached encoding of an event, or encodes and caches it. Other watches that
// need it meanwhile wait for that.
func (s *Reader) sharedEncoding(e watchcache.Event, key encodingKey, encode func() ([]byte, error)) ([]byte, error) {
	encodings := s.handle(e.Object)
	if cached := encodings.bytes(key, singleRead); cached != nil {
		return cached, nil
	}
	lock := s.eventLocks.of(e.Object)
	lock.Lock()
	defer lock.Unlock()
	if cached := encodings.bytes(key, singleRead); cached != nil {
		return cached, nil
	}
	b, err := encode()
	if err == nil {
		encodings.cacheEvent(key, b)
	}
	return b, err
}

func (s *Reader) appendEncodedEvent(b []byte, e watchcache.Event, as encoding, u use) ([]byte, error) {
	item, err := s.eventItem(e, as, u)
	if err != nil {
		return b, err
	}
	return s.resource.appendEvent(slices.Grow(b, len(item)+eventOverhead), e.Type, item, as), nil
}

// eventItem returns the item encoding of an event's object.
func (s *Reader) eventItem(e watchcache.Event, as encoding, u use) ([]byte, error) {
	switch {
	case e.Type == watch.Bookmark:
		o, err := s.resource.Cache.BookmarkObject(e)
		if err != nil {
			return nil, err
		}
		return s.encodeItem(o, as)
	case e.Revision == e.Object.Revision():
		return s.itemEncoding(e.Object, as, u)
	}
	return s.itemAtRevision(e.Object, as, e.Revision)
}

// appendEvent appends an event of a type, whose object has an item encoding.
func (r *Resource) appendEvent(b []byte, event watch.EventType, item []byte, as encoding) []byte {
	if !isProtobuf(as) {
		return append(r.appendObject(appendEventStart(b, event), item, as), "}\n"...)
	}
	b = appendEventFields(b, event, unknownSize(r.kind(as), len(item)))
	return r.appendObject(b, item, as)
}

// appendEventStart appends the start of an event in JSON, up to its object.
func appendEventStart(b []byte, event watch.EventType) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, event...)
	return append(b, `","object":`...)
}

// appendEventFields appends the start of an event in protobuf, up to its object. It needs the size of
// the object, because the frame begins with its length.
func appendEventFields(b []byte, event watch.EventType, object int) []byte {
	extension := protowire.SizeTag(extensionRaw) + protowire.SizeBytes(object)
	size := protowire.SizeTag(eventType) + protowire.SizeBytes(len(event)) + protowire.SizeTag(eventObject) +
		protowire.SizeBytes(extension)
	b = append(b, byte(size>>24), byte(size>>16), byte(size>>8), byte(size))
	b = protowire.AppendTag(b, eventType, protowire.BytesType)
	b = protowire.AppendString(b, string(event))
	b = protowire.AppendTag(b, eventObject, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(extension))
	b = protowire.AppendTag(b, extensionRaw, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(object))
}

// errorEvent returns the encoding of the event that ends a watch with an error.
func errorEvent(err error, as encoding) []byte {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	if isProtobuf(as) {
		raw, _ := status.Marshal() // a Status has nothing that can fail
		b := appendEventFields(nil, watch.Error, unknownSize(statusKind, len(raw)))
		b = append(appendUnknown(b, statusKind, len(raw)), raw...)
		return append(b, unknownEnd...)
	}
	status.SetGroupVersionKind(statusKind)
	object, _ := json.Marshal(&status)
	return append(append(appendEventStart(nil, watch.Error), object...), "}\n"...)
}

var statusKind = metav1.Unversioned.WithKind("Status")
