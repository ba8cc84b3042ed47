package rawwatch

import (
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// frame is one watch event, not yet read.
type frame struct {
	Type   string
	Object json.RawMessage
}

// frames reads events one by one. A torn one is an error.
func frames(body io.ReadCloser, isProtobuf bool) func() (frame, error) {
	if !isProtobuf {
		decoder := json.NewDecoder(body)
		return func() (f frame, err error) {
			err = decoder.Decode(&f)
			return f, err
		}
	}
	framer := protobuf.LengthDelimitedFramer.NewFrameReader(body)
	buffer := make([]byte, 64<<10) // more than any event of a trial has
	return func() (frame, error) {
		n, err := framer.Read(buffer)
		if err != nil {
			return frame{}, err
		}
		var event metav1.WatchEvent
		if err := event.Unmarshal(buffer[:n]); err != nil {
			return frame{}, err
		}
		return frame{event.Type, event.Object.Raw}, nil
	}
}

// status reads the object of an ERROR event.
func (f frame) status() (*metav1.Status, error) {
	decoded, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), f.Object)
	if err != nil {
		return nil, err
	}
	status, ok := decoded.(*metav1.Status)
	if !ok {
		return nil, fmt.Errorf("an ERROR event with a %T", decoded)
	}
	return status, nil
}
