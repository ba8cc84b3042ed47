package readpath

import (
	"bytes"
	"hash/maphash"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/watchcache"
)

// locks are of objects, by their keys: objects that are written together have one revision.
type locks struct {
	seed maphash.Seed
	all  [64]sync.Mutex
}

// of is an object's, shared with few others.
func (l *locks) of(o *watchcache.Object) *sync.Mutex {
	return &l.all[maphash.Comparable(l.seed, o.Key())%uint64(len(l.all))]
}

// item is an object as it stands in a list: JSON of built-in kinds without apiVersion
// and kind, protobuf without the envelope, a row of a table without its ages. All other
// shapes of an object are its item with something around it. It is encoded once and cached. It must not be changed.
func (s *Reader) item(o *watchcache.Object, f form, d demand) ([]byte, error) {
	return s.itemOfDecoded(o, nil, f, d)
}

// readItem is the item of an object that may not have been read yet: then it is decoded once for both.
func (s *Reader) readItem(o keepwatch.Object, f form, d demand) ([]byte, error) {
	read := s.Cache.Decode
	if isProtobuf(f) {
		read = s.Cache.ReadDecoded
	}
	known, decoded, err := read(o)
	if err != nil {
		return nil, err
	}
	return s.itemOfDecoded(known, decoded, f, d)
}

// itemOfDecoded is item. decoded is nil or the object's Go value.
func (s *Reader) itemOfDecoded(o *watchcache.Object, decoded runtime.Object, f form, d demand) ([]byte, error) {
	if known := s.known(o, f, d); known != nil {
		return known, nil
	}
	lock := s.encoding.of(o)
	lock.Lock()
	defer lock.Unlock()
	holds := s.holder(o)
	if known := holds.bytes(s.key(f), d); known != nil {
		return known, nil
	}
	var err error
	if decoded == nil {
		if decoded, err = o.Decoded(); err != nil {
			return nil, err
		}
	}
	item, err := s.encode(decoded, f)
	if err == nil {
		holds.cache(s.key(f), item, cap(item), d)
	}
	return item, err
}

// holder is an object's.
func (s *Reader) holder(o *watchcache.Object) *holder {
	if known, ok := o.Attached().(*holder); ok {
		return known
	}
	return o.Attach(s.budget.hold()).(*holder)
}

// key is that of an item or a block.
func (s *Reader) key(f form) encodingKey { return encodingKey{reader: s.number, form: f} }

// known is an item that need not be made, or nil.
func (s *Reader) known(object keepwatch.Object, f form, d demand) []byte {
	o, ok := object.(*watchcache.Object)
	if !ok {
		return nil
	}
	served := o.Bytes()
	switch {
	case served != nil && o.Protobuf() && f == plainProtobuf, served != nil && !o.Protobuf() && f == plainJSON:
		return served
	case served != nil && o.Protobuf() && f == metadataProtobuf:
		return metadataField(served)
	}
	if holds, ok := o.Attached().(*holder); ok {
		return holds.bytes(s.key(f), d)
	}
	return nil
}

// itemAt is the item of an object as it is shown at another revision than its own:
// that of its deletion.
func (s *Reader) itemAt(o *watchcache.Object, f form, revision keepwatch.Revision) ([]byte, error) {
	decoded, err := o.Decoded()
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(decoded)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(revision.String())
	return s.encode(decoded, f)
}

// encode makes an item. A built-in object has no apiVersion and kind of its own.
func (s *Reader) encode(o runtime.Object, f form) ([]byte, error) {
	if f == tableJSON {
		return s.encodeRow(o)
	}
	if isMetadata(f) {
		accessor, err := meta.Accessor(o)
		if err != nil {
			return nil, err
		}
		partial := meta.AsPartialObjectMetadata(accessor)
		if f == metadataJSON {
			partial.SetGroupVersionKind(metadataVersion.WithKind("PartialObjectMetadata"))
		}
		o = partial
	}
	if isProtobuf(f) {
		return marshal(o)
	}
	var b written
	if err := s.json.Encode(o, &b); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b, newline), nil
}

// written is what a serializer has written. It writes an object at once, so that the bytes are
// copied once.
type written []byte

func (w *written) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

var newline = []byte{'\n'}

// marshal is the protobuf of an object or of a part of one.
func marshal(o any) ([]byte, error) {
	p, ok := o.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind("protobuf", schema.GroupVersionKind{})
	}
	return p.Marshal()
}

// metadataField cuts an object's first field out of its protobuf: its metadata, as
// all kinds have it, which is PartialObjectMetadata's only field.
func metadataField(object []byte) []byte {
	number, kind, n := protowire.ConsumeTag(object)
	if n < 0 || number != 1 || kind != protowire.BytesType {
		return nil
	}
	_, m := protowire.ConsumeBytes(object[n:])
	if m < 0 {
		return nil
	}
	return object[:n+m]
}
