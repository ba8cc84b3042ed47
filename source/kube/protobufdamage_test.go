package kube

import (
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/keepwatch/keepwatch"
)

// Field numbers that only the generated code interprets.
const (
	typeMetaAPIVersion, typeMetaKind                      protowire.Number = 1, 2
	listMetaRevision, listMetaContinue, listMetaRemaining protowire.Number = 2, 3, 4
	objectMetaAnnotations, objectMetaOwners               protowire.Number = 12, 13
	objectMetaFinalizers                                  protowire.Number = 14
)

// bytesField returns a field with a length, whose content is the values.
func bytesField(number protowire.Number, values ...string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), strings.Join(values, "")))
}

// fixedField returns a field of eight bytes.
func fixedField(number protowire.Number, value string) string {
	return string(protowire.AppendTag(nil, number, protowire.Fixed64Type)) + value[:8]
}

// The parts of a bookmark at revision 9, and of a list at revision 9.
var (
	revision9   = bytesField(objectMetaRevision, "9")
	object9     = bytesField(objectMetadata, revision9)
	podKind     = bytesField(unknownTypeMeta, bytesField(typeMetaAPIVersion, "v1"), bytesField(typeMetaKind, "Pod"))
	unknown9    = string(magic) + podKind + bytesField(unknownRaw, object9)
	isBookmark  = bytesField(eventType, "BOOKMARK")
	list9       = bytesField(listMetadata, bytesField(listMetaRevision, "9"))
	podListKind = bytesField(unknownTypeMeta, bytesField(typeMetaAPIVersion, "v1"), bytesField(typeMetaKind, "PodList"))
)

// wireEvent returns a frame of a watch: the event's type, and the object's envelope.
func wireEvent(kind string, unknown ...string) string {
	object := string(magic) + strings.Join(unknown, "")
	return frameOf(kind + bytesField(eventObject, bytesField(rawExtensionRaw, object)))
}

// frameOf returns a frame with the event.
func frameOf(event string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(event)))) + event
}

// TestDamagedProtobufEvent: a watch ends before a bookmark that the API's generated
// code can't read. The bookmark's revision may be as wrong as the rest of it.
func TestDamagedProtobufEvent(t *testing.T) {
	of := func(unknown string) string { return wireEvent(isBookmark, unknown) }
	about := func(metadata string) string {
		return of(podKind + bytesField(unknownRaw, bytesField(objectMetadata, metadata)))
	}
	for name, c := range map[string]struct {
		text string
		ends keepwatch.Revision
	}{
		"whole":                 {of(podKind + bytesField(unknownRaw, object9)), 9},
		"revision twice":        {about(bytesField(objectMetaRevision, "8") + revision9), 9},
		"metadata in two parts": {of(podKind + bytesField(unknownRaw, object9, bytesField(objectMetadata))), 9},
		"unknown fields": {of(podKind + fixedField(99, "00000000") + bytesField(unknownRaw, object9,
			fixedField(99, "00000000"))), 9},
		"truncated kind": {of(bytesField(unknownTypeMeta, "\x12\x03Po") + bytesField(unknownRaw, object9)), 7},
		"kind of a wrong type": {of(bytesField(unknownTypeMeta, fixedField(typeMetaKind, "00000Pod")) +
			bytesField(unknownRaw, object9)), 7},
		"encoding of a wrong type": {of(podKind + fixedField(unknownContentEncoding, "00000000") + bytesField(unknownRaw,
			object9)), 7},
		"content of a wrong type": {of(podKind + fixedField(unknownContentType, "protobuf") + bytesField(unknownRaw,
			object9)), 7},
		"truncated object": {frameOf(isBookmark + bytesField(eventObject, bytesField(rawExtensionRaw, unknown9),
			"\x0a")), 7},
		"raw object of wrong type": {frameOf(isBookmark + bytesField(eventObject, bytesField(rawExtensionRaw, unknown9),
			fixedField(rawExtensionRaw, "00000000"))), 7},
		"type of a wrong type": {frameOf(fixedField(eventType, "BOOKMARK") + bytesField(eventObject,
			bytesField(rawExtensionRaw, unknown9))), 7},
		"object of a wrong type": {frameOf(isBookmark + bytesField(eventObject, bytesField(rawExtensionRaw, unknown9)) +
			fixedField(eventObject, "00000000")), 7},
		"metadata of a wrong type": {of(podKind + bytesField(unknownRaw, object9, fixedField(objectMetadata, "00000000"))),
			7},
		"revision of a wrong type":  {about(fixedField(objectMetaRevision, "10000000")), 7},
		"truncated annotation":      {about(revision9 + bytesField(objectMetaAnnotations, "\x0a\x05k8s")), 7},
		"annotation of wrong type":  {about(revision9 + fixedField(objectMetaAnnotations, "00000000")), 7},
		"finalizer of a wrong type": {about(revision9 + fixedField(objectMetaFinalizers, "00000000")), 7},
		"managed of a wrong type":   {about(revision9 + fixedField(objectMetaManaged, "00000000")), 7},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				inProtobuf(w, ";stream=watch")
				send(w, c.text)
			}), Options{Protobuf: true, Decode: decode, DropManagedFields: true})
			w, err := s.Watch(t.Context(), 7)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			batches, err := drain(w)
			wantHistory(t, batches, 7, c.ends)
			if c.ends == 9 {
				wantFailure(t, err, keepwatch.Ended)
			} else {
				wantFailure(t, err, keepwatch.Undecodable)
			}
		})
	}
}

// TestDamagedProtobufList: List fails if the API's generated code can't read the list.
// A page without one of the items would look as if that object had been deleted.
func TestDamagedProtobufList(t *testing.T) {
	pod, err := new(podOf("a", 3)).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	item := bytesField(listItems, string(pod))
	for name, c := range map[string]struct {
		text  string
		names []string // nil if it is no page
	}{
		"whole": {podListKind + bytesField(unknownRaw, list9, item), []string{"a"}},
		"metadata in two parts": {podListKind + bytesField(unknownRaw, list9, item, bytesField(listMetadata)),
			[]string{"a"}},
		"unknown fields": {podListKind + fixedField(99, "00000000") + bytesField(unknownRaw, list9,
			fixedField(99, "00000000"), item), []string{"a"}},
		"truncated kind":       {bytesField(unknownTypeMeta, "\x12\x03Po") + bytesField(unknownRaw, list9, item), nil},
		"kind of a wrong type": {fixedField(unknownTypeMeta, "00000000") + bytesField(unknownRaw, list9, item), nil},
		"list of a wrong type": {podListKind + bytesField(unknownRaw, list9, item) + fixedField(unknownRaw, "00000000"),
			nil},
		"encoding of a wrong type": {podListKind + fixedField(unknownContentEncoding, "00000000") + bytesField(unknownRaw,
			list9, item), nil},
		"content of a wrong type": {podListKind + fixedField(unknownContentType, "00000000") + bytesField(unknownRaw, list9,
			item), nil},
		"two lists": {podListKind + bytesField(unknownRaw, list9, item) + bytesField(unknownRaw, list9), nil},
		"item of a wrong type": {podListKind + bytesField(unknownRaw, list9, item, fixedField(listItems, "00000000")),
			nil},
		"metadata of a wrong type": {podListKind + bytesField(unknownRaw, list9, item, fixedField(listMetadata, "00000000")),
			nil},
		"revision of a wrong type": {podListKind + bytesField(unknownRaw, bytesField(listMetadata,
			fixedField(listMetaRevision, "10000000")), item), nil},
		"continue of a wrong type": {podListKind + bytesField(unknownRaw, bytesField(listMetadata,
			bytesField(listMetaRevision, "9"), fixedField(listMetaContinue, "10000000")), item), nil},
		"remaining of a wrong type": {podListKind + bytesField(unknownRaw, bytesField(listMetadata,
			bytesField(listMetaRevision, "9"), bytesField(listMetaRemaining, "1")), item), nil},
		"truncated metadata": {podListKind + bytesField(unknownRaw, bytesField(listMetadata,
			bytesField(listMetaRevision, "9"), "\x1a"), item), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				inProtobuf(w, "")
				send(w, string(magic)+c.text)
			}), Options{Protobuf: true, Decode: decode})
			page, err := s.List(t.Context(), keepwatch.ListRequest{})
			if c.names == nil {
				wantFailure(t, err, keepwatch.Undecodable)
				return
			}
			var names []string
			for _, o := range page.Objects {
				names = append(names, o.Key().Name)
			}
			if err != nil || page.Revision != 9 || !slices.Equal(names, c.names) || len(page.Skipped) > 0 {
				t.Errorf("page %+v of %v, %v", page, names, err)
			}
		})
	}
}

// TestDamagedJSONBookmark: a watch ends before a bookmark in JSON whose annotations are
// no map of strings.
func TestDamagedJSONBookmark(t *testing.T) {
	for _, annotations := range []string{`{"a":1}`, `["a"]`, `"a"`} {
		s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
			send(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":`+annotations+`}}}`)
		}), Options{})
		w, err := s.Watch(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		batches, err := drain(w)
		wantHistory(t, batches, 7, 7)
		wantFailure(t, err, keepwatch.Undecodable, "a bookmark's annotations")
	}
}
