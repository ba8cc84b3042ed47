package readpath

import (
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// magic begins every protobuf of the Kubernetes API.
const magic = "k8s\x00"

// The numbers of the fields of the messages that contain objects: runtime.Unknown, TypeMeta,
// WatchEvent, RawExtension, and all lists.
const (
	unknownType, unknownRaw, unknownEncoding, unknownContentType = 1, 2, 3, 4
	typeVersion, typeKind                                        = 1, 2
	eventType, eventObject                                       = 1, 2
	extensionRaw                                                 = 1
	listMeta, listItem                                           = 1, 2
)

// appendObject appends an object on its own, which names its kind, given its item encoding.
func (r *Resource) appendObject(b, item []byte, as encoding) []byte {
	switch {
	case isProtobuf(as):
		b = appendUnknown(b, r.kind(as), len(item))
		b = append(b, item...)
		return append(b, unknownEnd...)
	case r.itemsNameKind(as):
		return append(b, item...)
	}
	return append(appendKind(b, r.kind(as)), item[1:]...)
}

// appendKind appends the start of a JSON object that names its kind first, as those of built-in kinds
// do. The item encoding follows without its opening brace.
func appendKind(b []byte, kind schema.GroupVersionKind) []byte {
	b = append(b, `{"kind":"`...)
	b = append(b, kind.Kind...)
	b = append(b, `","apiVersion":"`...)
	b = append(b, kind.GroupVersion().String()...)
	return append(b, `",`...)
}

// appendUnknown appends the start of a runtime.Unknown: magic, the kind, and the tag and length of a
// message of the given size. The message and unknownEnd follow.
func appendUnknown(b []byte, kind schema.GroupVersionKind, size int) []byte {
	b = append(b, magic...)
	b = protowire.AppendTag(b, unknownType, protowire.BytesType)
	b = protowire.AppendBytes(b, typeMeta(kind))
	b = protowire.AppendTag(b, unknownRaw, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(size))
}

// unknownEnd is the empty encoding and content type.
var unknownEnd = []byte{unknownEncoding<<3 | 2, 0, unknownContentType<<3 | 2, 0}

// unknownSize returns the size of appendUnknown's bytes, a message of the given size and unknownEnd.
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
