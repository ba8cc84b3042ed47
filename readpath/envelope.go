package readpath

import (
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/watchcache"
)

// magic is before every protobuf of the Kubernetes API.
const magic = "k8s\x00"

// The fields of the messages that objects are wrapped in: runtime.Unknown, TypeMeta,
// WatchEvent, RawExtension, and all lists.
const (
	unknownType, unknownRaw, unknownEncoding, unknownContentType = 1, 2, 3, 4
	typeVersion, typeKind                                        = 1, 2
	eventType, eventObject                                       = 1, 2
	extensionRaw                                                 = 1
	listMeta, listItem                                           = 1, 2
)

// appendKind appends the start of a JSON object that names its kind first, as the
// built-in ones do: an item goes on behind it without its opening brace.
func appendKind(b []byte, kind schema.GroupVersionKind) []byte {
	b = append(b, `{"kind":"`...)
	b = append(b, kind.Kind...)
	b = append(b, `","apiVersion":"`...)
	b = append(b, kind.GroupVersion().String()...)
	return append(b, `",`...)
}

// appendUnknown appends the start of a runtime.Unknown in whose place a message of
// the given size follows, and then unknownEnd.
func appendUnknown(b []byte, kind schema.GroupVersionKind, size int) []byte {
	b = append(b, magic...)
	b = protowire.AppendTag(b, unknownType, protowire.BytesType)
	b = protowire.AppendBytes(b, typeMeta(kind))
	b = protowire.AppendTag(b, unknownRaw, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(size))
}

// unknownEnd is the empty encoding and content type.
var unknownEnd = []byte{unknownEncoding<<3 | 2, 0, unknownContentType<<3 | 2, 0}

// unknownSize is what appendUnknown, a message of the given size and unknownEnd take.
func unknownSize(kind schema.GroupVersionKind, size int) int {
	version := protowire.SizeTag(typeVersion) + protowire.SizeBytes(len(kind.GroupVersion().String()))
	name := protowire.SizeTag(typeKind) + protowire.SizeBytes(len(kind.Kind))
	return len(magic) + protowire.SizeTag(unknownType) + protowire.SizeBytes(version+name) +
		protowire.SizeTag(unknownRaw) + protowire.SizeBytes(size) + len(unknownEnd)
}

func typeMeta(kind schema.GroupVersionKind) []byte {
	b := protowire.AppendTag(nil, typeVersion, protowire.BytesType)
	b = protowire.AppendString(b, kind.GroupVersion().String())
	b = protowire.AppendTag(b, typeKind, protowire.BytesType)
	return protowire.AppendString(b, kind.Kind)
}

// appendObject appends an item as an object of its own, which names its kind.
func (r *Resource) appendObject(b, item []byte, f form) []byte {
	switch {
	case isProtobuf(f):
		b = appendUnknown(b, r.kind(f), len(item))
		b = append(b, item...)
		return append(b, unknownEnd...)
	case r.named(f):
		return append(b, item...)
	}
	return append(appendKind(b, r.kind(f)), item[1:]...)
}

// appendEvent appends an event of a watch, of an item.
func (r *Resource) appendEvent(b []byte, kind watch.EventType, item []byte, f form) []byte {
	if !isProtobuf(f) {
		return append(r.appendObject(appendEventStart(b, kind), item, f), "}\n"...)
	}
	b = appendEventFields(b, kind, unknownSize(r.kind(f), len(item)))
	return r.appendObject(b, item, f)
}

// appendEventStart appends what is before an event's object in JSON.
func appendEventStart(b []byte, kind watch.EventType) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, kind...)
	return append(b, `","object":`...)
}

// appendEventFields appends what is before an event's object in protobuf, whose size
// it must know: the length of the frame is the first of it.
func appendEventFields(b []byte, kind watch.EventType, object int) []byte {
	extension := protowire.SizeTag(extensionRaw) + protowire.SizeBytes(object)
	size := protowire.SizeTag(eventType) + protowire.SizeBytes(len(kind)) + protowire.SizeTag(eventObject) + protowire.SizeBytes(extension)
	b = append(b, byte(size>>24), byte(size>>16), byte(size>>8), byte(size))
	b = protowire.AppendTag(b, eventType, protowire.BytesType)
	b = protowire.AppendString(b, string(kind))
	b = protowire.AppendTag(b, eventObject, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(extension))
	b = protowire.AppendTag(b, extensionRaw, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(object))
}

// envelope is what stands around the items of a list.
type envelope struct {
	head, tail []byte
}

// envelope makes that of a listing. For protobuf it must know how long all items are
// with their tags.
func (r *Resource) envelope(listing *watchcache.ListResult, f form, size int) (envelope, error) {
	about := metav1.ListMeta{
		ResourceVersion:    listing.Revision.String(),
		Continue:           listing.Continue,
		RemainingItemCount: listing.Remaining,
	}
	if isProtobuf(f) {
		meta, err := about.Marshal()
		if err != nil {
			return envelope{}, err
		}
		field := protowire.AppendBytes(protowire.AppendTag(nil, listMeta, protowire.BytesType), meta)
		head := appendUnknown(nil, r.kindOfList(f), len(field)+size)
		return envelope{head: append(head, field...), tail: unknownEnd}, nil
	}
	switch {
	case f == tableJSON:
		head, err := r.Table.appendStart(nil, about, true)
		return envelope{head: head, tail: []byte("]}\n")}, err
	case f == plainJSON && r.Dynamic:
		return r.dynamicEnvelope(about)
	}
	meta, err := json.Marshal(about)
	if err != nil {
		return envelope{}, err
	}
	head := append(appendKind(nil, r.kindOfList(f)), `"metadata":`...)
	head = append(append(head, meta...), `,"items":`...)
	if f == metadataJSON && listing.Len() == 0 {
		return envelope{head: head, tail: []byte("null}\n")}, nil // as kube-apiserver has it
	}
	return envelope{head: append(head, '['), tail: []byte("]}\n")}, nil
}

// dynamicEnvelope is that of custom resources, whose fields are in alphabetical
// order and whose metadata has "continue" even when it is empty.
func (r *Resource) dynamicEnvelope(about metav1.ListMeta) (envelope, error) {
	fields := map[string]any{"continue": about.Continue, "resourceVersion": about.ResourceVersion}
	if about.RemainingItemCount != nil {
		fields["remainingItemCount"] = *about.RemainingItemCount
	}
	meta, err := json.Marshal(fields)
	if err != nil {
		return envelope{}, err
	}
	kind := r.kindOfList(plainJSON)
	head := []byte(`{"apiVersion":"` + kind.GroupVersion().String() + `","items":[`)
	tail := append([]byte(`],"kind":"`+kind.Kind+`","metadata":`), meta...)
	return envelope{head: head, tail: append(tail, "}\n"...)}, nil
}
