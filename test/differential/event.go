package differential

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	cborType     = "application/cbor"
	cborSequence = "application/cbor-seq" // of a watch
)

// Event is one frame of a watch.
type Event struct {
	Type   watch.EventType
	Object []byte // as it was encoded
	Frame  []byte // all of it
}

// events cuts a stream into its frames.
func events(media string, body []byte) ([]Event, error) {
	cut := cutLine
	switch media {
	case protobufType:
		cut = cutDelimited
	case cborSequence:
		cut = cutCBOR
	}
	var all []Event
	for len(body) > 0 {
		event, rest, err := cut(body)
		if err != nil {
			return all, err
		}
		all, body = append(all, event), rest
	}
	return all, nil
}

// cutLine splits off one line of JSON.
func cutLine(body []byte) (Event, []byte, error) {
	line, rest, whole := bytes.Cut(body, []byte("\n"))
	if !whole {
		return Event{}, nil, errors.New("the stream ends within a line")
	}
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return Event{}, nil, fmt.Errorf("no event: %w", err)
	}
	return Event{Type: event.Type, Object: event.Object, Frame: line}, rest, nil
}

// cutDelimited splits off one message of protobuf with its length prefix.
func cutDelimited(body []byte) (Event, []byte, error) {
	if len(body) < 4 {
		return Event{}, nil, errors.New("the stream ends within a length")
	}
	length := binary.BigEndian.Uint32(body)
	if uint64(len(body)-4) < uint64(length) {
		return Event{}, nil, errors.New("the stream ends within a message")
	}
	frame, rest := body[4:4+length], body[4+length:]
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame); err != nil {
		return Event{}, nil, fmt.Errorf("no event: %w", err)
	}
	return Event{Type: watch.EventType(event.Type), Object: event.Object.Raw, Frame: frame}, rest, nil
}

// cutCBOR splits off one item of CBOR.
func cutCBOR(body []byte) (Event, []byte, error) {
	var event struct {
		Type   watch.EventType `cbor:"type"`
		Object cbor.RawMessage `cbor:"object"`
	}
	rest, err := cborMode.UnmarshalFirst(body, &event)
	if err != nil {
		return Event{}, nil, fmt.Errorf("no event: %w", err)
	}
	return Event{Type: event.Type, Object: event.Object, Frame: body[:len(body)-len(rest)]}, rest, nil
}

// byTheClock reports whether an event is a bookmark that a server sends about once a
// minute, or before the end. The other bookmark follows the initial events.
func (e Event) byTheClock() bool {
	return e.Type == watch.Bookmark && !bytes.Contains(e.Object, []byte(metav1.InitialEventsAnnotationKey))
}
