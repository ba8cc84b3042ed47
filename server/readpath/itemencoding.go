package readpath

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"reflect"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/readpath/internal/objectjson"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// An item encoding is an object as it stands in a list: JSON of built-in kinds without apiVersion
// and kind, protobuf without the API's envelope, a row of a Table without its ages. An object on its
// own, or in an event, is its item encoding with bytes around it. Item encodings never change.

// itemEncoding returns the item encoding of an object of the cache. It encodes the object if the
// encoding is not cached, and decodes it before that if no reader has: then once for both. JSON of an
// object whose protobuf the watch cache has is made of the protobuf. Only for onlyRead it leaves no encoding cached.
func (s *Reader) itemEncoding(object keepwatch.Object, as encoding, u use) ([]byte, error) {
	if cached := s.cachedItem(object, as, u); cached != nil {
		return cached, nil
	}
	decode := s.resource.Cache.Decode
	if isProtobuf(as) && s.ownBytes {
		decode = s.resource.Cache.ReadDecoded
	}
	o, decoded, err := decode(object)
	if err != nil {
		return nil, err
	}
	if cached := s.cachedItem(o, as, u); cached != nil {
		return cached, nil // the watch cache has it now
	}
	if u == onlyRead {
		return s.encode(o, decoded, as)
	}
	lock := s.itemLocks.of(o)
	lock.Lock()
	defer lock.Unlock()
	encodings := s.handle(o)
	if cached := encodings.bytes(s.key(as), u); cached != nil {
		return cached, nil
	}
	item, err := s.encode(o, decoded, as)
	if err == nil {
		encodings.cache(s.key(as), item, cap(item), u)
	}
	return item, err
}

// appendItem appends an item encoding that is read once, as itemEncoding returns it for onlyRead.
func (s *Reader) appendItem(b []byte, object keepwatch.Object, as encoding) ([]byte, error) {
	if as != objectJSON {
		item, err := s.itemEncoding(object, as, onlyRead)
		return append(b, item...), err
	}
	if cached := s.cachedItem(object, as, onlyRead); cached != nil {
		return append(b, cached...), nil
	}
	o, decoded, err := s.resource.Cache.Decode(object)
	if err != nil {
		return b, err
	}
	if s.hasMessage(o) {
		if longer, ok := objectjson.AppendMessage(b, s.resource.Cache.MessageType(), o.Bytes()); ok {
			return longer, nil
		}
	}
	if decoded == nil {
		if decoded, err = o.Decoded(); err != nil {
			return b, err
		}
	}
	if s.resource.Convert != nil {
		if decoded, err = s.resource.Convert(decoded); err != nil {
			return b, err
		}
	}
	return s.appendJSON(b, decoded)
}

// appendListItem is appendItem for a list. Its error is an *itemError.
func (s *Reader) appendListItem(b []byte, o keepwatch.Object, as encoding) ([]byte, error) {
	b, err := s.appendItem(b, o, as)
	if err != nil {
		return b, &itemError{o, err}
	}
	return b, nil
}

// encode encodes an object of the cache: its message, or its Go value, which it may change. decoded is nil if the
// caller has not decoded the object.
func (s *Reader) encode(o *watchcache.Object, decoded runtime.Object, as encoding) ([]byte, error) {
	item, ok, err := s.encodeMessage(o, as)
	if ok || err != nil {
		return item, err
	}
	if decoded == nil {
		if decoded, err = o.Decoded(); err != nil {
			return nil, err
		}
	}
	return s.encodeItem(decoded, as)
}

// listItem is itemEncoding for a list. Its error is an *itemError.
func (s *Reader) listItem(o keepwatch.Object, as encoding, u use) ([]byte, error) {
	item, err := s.itemEncoding(o, as, u)
	if err != nil {
		return nil, &itemError{o, err}
	}
	return item, nil
}

// itemError is the error of an object that can't be encoded.
type itemError struct {
	object keepwatch.Object
	err    error
}

func (e *itemError) Error() string { return fmt.Sprintf("encode %s: %v", e.object.Key(), e.err) }

func (e *itemError) Unwrap() error { return e.err }

// cachedItem returns an item encoding that is cached here or in the watch cache, or nil.
func (s *Reader) cachedItem(object keepwatch.Object, as encoding, u use) []byte {
	o, ok := object.(*watchcache.Object)
	if !ok {
		return nil
	}
	if served := o.Bytes(); served != nil && s.ownBytes {
		switch {
		case o.Protobuf() && as == objectProtobuf, !o.Protobuf() && as == objectJSON:
			return served
		case o.Protobuf() && as == metadataProtobuf && s.resource.Convert == nil:
			return metadataField(served)
		}
	}
	if encodings, ok := o.Attached().(*handle); ok {
		return encodings.bytes(s.key(as), u)
	}
	return nil
}

// itemAtRevision returns the item encoding of an object at the revision of its deletion.
func (s *Reader) itemAtRevision(o *watchcache.Object, as encoding, revision keepwatch.Revision) ([]byte, error) {
	decoded, err := o.Decoded()
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(decoded)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(revision.String())
	return s.encodeItem(decoded, as)
}

// encodeItem encodes a Go value from the cache. Rows and metadata are those of the value before it is
// converted, as in kube-apiserver: conversion may add annotations.
func (s *Reader) encodeItem(o runtime.Object, as encoding) ([]byte, error) {
	switch {
	case isTable(as):
		return s.encodeRow(o, as)
	case isMetadata(as):
		return s.encodeMetadata(o, as)
	}
	if s.resource.Convert != nil {
		var err error
		if o, err = s.resource.Convert(o); err != nil {
			return nil, err
		}
	}
	if isProtobuf(as) {
		return marshal(o)
	}
	return s.encodeJSON(o)
}

// partialType is the Go type of an object's metadata: its message is the first field of an object's.
var partialType = reflect.TypeFor[metav1.PartialObjectMetadata]()

var verbatimType = reflect.TypeFor[watchcache.Verbatim]()

// encodeMessage encodes the JSON of an object, of its metadata or of its row, if the watch cache has the object's
// message, without decoding it, or not as a whole. It returns false if the object must be decoded.
func (s *Reader) encodeMessage(o *watchcache.Object, as encoding) (item []byte, ok bool, err error) {
	switch {
	case isTable(as):
		return s.encodeMessageRow(o, as)
	case as != objectJSON && as != metadataJSON || !s.hasMessage(o):
		return nil, false, nil
	case as == metadataJSON:
		if s.resource.Convert != nil {
			return nil, false, nil // it is that of the value before its conversion
		}
		item, ok = s.messageMetadata(o)
		return item, ok, nil
	}
	b := getBuffer()
	defer func() { putBuffer(b) }()
	b, ok = objectjson.AppendMessage(b, s.resource.Cache.MessageType(), o.Bytes())
	return bytes.Clone(b), ok, nil
}

// hasMessage reports whether the watch cache has the message of an object as this reader serves it.
func (s *Reader) hasMessage(o *watchcache.Object) bool {
	return s.ownBytes && o.Protobuf() && isPlanSerializer(s.json)
}

// messageMetadata encodes the JSON of the metadata of an object that has a message. It returns false if the object must
// be decoded.
func (s *Reader) messageMetadata(o *watchcache.Object) (item []byte, ok bool) {
	metadata := metadataField(o.Bytes())
	if metadata == nil || reflect.PointerTo(s.resource.Cache.MessageType()).Implements(verbatimType) {
		return nil, false // as the source would answer it
	}
	b := getBuffer()
	defer func() { putBuffer(b) }()
	if b, ok = objectjson.AppendMessage(b, partialType, metadata); !ok {
		return nil, false
	}
	kind := metadataVersion.WithKind("PartialObjectMetadata")
	return append(appendKind(make([]byte, 0, len(b)+len(kind.Kind)+len(kind.GroupVersion().String())+
		len(`"kind":"","apiVersion":"",`)), kind), b[1:]...), true
}

// encodeMetadata encodes an object's metadata.
func (s *Reader) encodeMetadata(o runtime.Object, as encoding) ([]byte, error) {
	if verbatim, ok := o.(watchcache.Verbatim); ok {
		return verbatim.Metadata(isProtobuf(as))
	}
	accessor, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	partial := meta.AsPartialObjectMetadata(accessor)
	if isProtobuf(as) {
		return marshal(partial)
	}
	partial.SetGroupVersionKind(metadataVersion.WithKind("PartialObjectMetadata"))
	return s.encodeJSON(partial)
}

// encodeJSON encodes a Go value. One of a built-in kind has no apiVersion and kind.
func (s *Reader) encodeJSON(o runtime.Object) ([]byte, error) { return s.appendJSON(nil, o) }

func (s *Reader) appendJSON(b []byte, o runtime.Object) ([]byte, error) {
	w := byteWriter(b)
	if err := s.json.Encode(o, &w); err != nil {
		return b, err
	}
	return bytes.TrimSuffix(w, newline), nil
}

// byteWriter collects what a serializer writes. A serializer writes an object with one Write, so
// that the bytes are copied once.
type byteWriter []byte

func (w *byteWriter) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

var newline = []byte{'\n'}

// marshal returns the protobuf of an object or of its metadata.
func marshal(o any) ([]byte, error) {
	p, ok := o.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind("protobuf", schema.GroupVersionKind{})
	}
	return p.Marshal()
}

// metadataField returns the first field of an object's protobuf. In all kinds that is the metadata,
// which is also PartialObjectMetadata's only field.
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

// keyLocks are mutexes for objects by key. Keys share them; readers of one object always meet at
// the same one. The revision would not do: objects that are written together have the same.
type keyLocks struct {
	seed maphash.Seed
	all  [64]sync.Mutex
}

func newKeyLocks() *keyLocks { return &keyLocks{seed: maphash.MakeSeed()} }

// of returns the mutex of an object.
func (l *keyLocks) of(o *watchcache.Object) *sync.Mutex {
	return &l.all[maphash.Comparable(l.seed, o.Key())%uint64(len(l.all))]
}
