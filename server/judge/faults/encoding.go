package faults

import (
	"bytes"
	"encoding/json"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
)

// unknownEventType is a type of events that no version of Kubernetes has.
const unknownEventType = "UNKNOWN"

// watchEvent is what faults need to know about an event.
type watchEvent struct {
	Type     string
	Metadata metav1.PartialObjectMetadata
}

func (e watchEvent) isBookmark() bool { return e.Type == string(watch.Bookmark) }

// endsInitialEvents reports whether e is the bookmark behind a streaming list.
func (e watchEvent) endsInitialEvents() bool {
	return e.isBookmark() && e.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// encoding reads and makes events.
type encoding interface {
	// parse returns an event's type and metadata.
	parse(message []byte) (watchEvent, error)
	// errorEvent is an ERROR event.
	errorEvent(*metav1.Status) ([]byte, error)
	// bookmark is a BOOKMARK with the kind and the revision of e.
	bookmark(e watchEvent) ([]byte, error)
	// retype is the message with another type.
	retype(message []byte, eventType string) ([]byte, error)
	// pad is the message, extended to size bytes without a change of its meaning.
	pad(message []byte, size int) []byte
	// garbage is a message that cannot be decoded.
	garbage() []byte
}

type jsonEvents struct{}

func (jsonEvents) parse(message []byte) (watchEvent, error) {
	var e struct {
		Type   string
		Object metav1.PartialObjectMetadata
	}
	err := json.Unmarshal(message, &e)
	return watchEvent{e.Type, e.Object}, err
}

func (jsonEvents) errorEvent(status *metav1.Status) ([]byte, error) {
	return jsonEvents{}.event(watch.Error, status)
}

func (jsonEvents) bookmark(e watchEvent) ([]byte, error) {
	return jsonEvents{}.event(watch.Bookmark, &metav1.PartialObjectMetadata{
		TypeMeta: e.Metadata.TypeMeta, ObjectMeta: metav1.ObjectMeta{ResourceVersion: e.Metadata.ResourceVersion},
	})
}

func (jsonEvents) event(eventType watch.EventType, object any) ([]byte, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return json.Marshal(metav1.WatchEvent{Type: string(eventType), Object: runtime.RawExtension{Raw: raw}})
}

func (jsonEvents) retype(message []byte, eventType string) ([]byte, error) {
	var e metav1.WatchEvent
	if err := json.Unmarshal(message, &e); err != nil {
		return nil, err
	}
	e.Type = eventType
	return json.Marshal(e)
}

func (jsonEvents) pad(message []byte, size int) []byte {
	body := bytes.TrimSuffix(bytes.TrimRight(message, "\n"), []byte("}"))
	spaces := bytes.Repeat([]byte(" "), max(0, size-len(body)-1))
	return append(append(bytes.Clone(body), spaces...), '}')
}

func (jsonEvents) garbage() []byte { return []byte(`{"type":"MODIFIED","object":{]}`) }

type protobufEvents struct{}

// protobufMagic precedes every object.
var protobufMagic = []byte("k8s\x00")

func (protobufEvents) parse(message []byte) (watchEvent, error) {
	var e metav1.WatchEvent
	if err := e.Unmarshal(message); err != nil {
		return watchEvent{}, err
	}
	raw, ok := bytes.CutPrefix(e.Object.Raw, protobufMagic)
	if !ok {
		return watchEvent{}, errors.New("an object without its prefix")
	}
	var object runtime.Unknown
	if err := object.Unmarshal(raw); err != nil {
		return watchEvent{}, err
	}
	parsed := watchEvent{Type: e.Type}
	parsed.Metadata.APIVersion, parsed.Metadata.Kind = object.APIVersion, object.Kind
	return parsed, parsed.Metadata.ObjectMeta.Unmarshal(firstField(object.Raw))
}

// firstField returns an object's metadata.
func firstField(message []byte) []byte {
	number, wire, n := protowire.ConsumeTag(message)
	if n < 0 || number != 1 || wire != protowire.BytesType {
		return nil
	}
	field, _ := protowire.ConsumeBytes(message[n:])
	return field
}

func (protobufEvents) errorEvent(status *metav1.Status) ([]byte, error) {
	var object bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(status, &object); err != nil {
		return nil, err
	}
	return protobufEvents{}.event(watch.Error, object.Bytes())
}

func (protobufEvents) bookmark(e watchEvent) ([]byte, error) {
	metadata, err := (&metav1.ObjectMeta{ResourceVersion: e.Metadata.ResourceVersion}).Marshal()
	if err != nil {
		return nil, err
	}
	object := runtime.Unknown{
		TypeMeta: runtime.TypeMeta{APIVersion: e.Metadata.APIVersion, Kind: e.Metadata.Kind},
		Raw:      protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), metadata),
	}
	raw, err := object.Marshal()
	if err != nil {
		return nil, err
	}
	return protobufEvents{}.event(watch.Bookmark, append(bytes.Clone(protobufMagic), raw...))
}

func (protobufEvents) event(eventType watch.EventType, object []byte) ([]byte, error) {
	e := metav1.WatchEvent{Type: string(eventType), Object: runtime.RawExtension{Raw: object}}
	return e.Marshal()
}

func (protobufEvents) retype(message []byte, eventType string) ([]byte, error) {
	var e metav1.WatchEvent
	if err := e.Unmarshal(message); err != nil {
		return nil, err
	}
	e.Type = eventType
	return e.Marshal()
}

// pad appends an unknown field, which decoders skip.
func (protobufEvents) pad(message []byte, size int) []byte {
	const number, overhead = 15, 6
	field := protowire.AppendTag(nil, number, protowire.BytesType)
	field = protowire.AppendBytes(field, make([]byte, max(0, size-len(message)-overhead)))
	return append(bytes.Clone(message), field...)
}

func (protobufEvents) garbage() []byte { return []byte("\xff\xff\xff\xffgarbage") }
