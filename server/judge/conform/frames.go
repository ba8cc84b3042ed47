package conform

import (
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keepwatch/keepwatch/internal/eventframes"
)

// maxFrame bounds a message of a WebSocket, in bytes: more than any object of a run has.
const maxFrame = 1 << 20

// event is one event of a watch, with its object in JSON.
type event struct {
	Type   string
	Object json.RawMessage
}

// object returns the object in JSON, also of a Table, which has it in its only row.
func (e event) object() json.RawMessage {
	var table struct {
		Kind string
		Rows []struct{ Object json.RawMessage }
	}
	if json.Unmarshal(e.Object, &table) == nil && table.Kind == "Table" && len(table.Rows) == 1 {
		return table.Rows[0].Object
	}
	return e.Object
}

// initialEventsEnd reports whether the event is the bookmark behind the initial events.
func (e event) initialEventsEnd() bool {
	var o metav1.PartialObjectMetadata
	return e.Type == "BOOKMARK" && json.Unmarshal(e.Object, &o) == nil &&
		o.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// status returns the Status of an ERROR event.
func (e event) status() (metav1.Status, error) {
	var s metav1.Status
	err := json.Unmarshal(e.Object, &s)
	return s, err
}

// events reads the events of a stream one by one. The error is io.EOF at the end of a whole event.
func events(body io.ReadCloser, isProtobuf bool) func() (event, error) {
	next := eventframes.Reader(body, isProtobuf)
	return func() (e event, err error) {
		f, err := next()
		if e = (event{f.Type, f.Object}); err == nil && isProtobuf {
			e.Object, err = jsonOf(f.Object)
		}
		return e, err
	}
}

// jsonOf converts an encoded built-in object to JSON.
func jsonOf(raw []byte) ([]byte, error) {
	decoded, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(decoded)
}
