package readpath

import (
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/keepwatch/keepwatch/readpath/internal/objectjson"
)

// planned is the API machinery's serializer of JSON, in half the time.
type planned struct{ *json.Serializer }

// encoderOf returns a serializer's equal that is faster, or the serializer if that is not the API
// machinery's own, of JSON that is not indented.
func encoderOf(s runtime.Serializer) runtime.Serializer {
	own, ok := s.(*json.Serializer)
	if !ok || own.Identifier() != plainJSONIdentifier {
		return s
	}
	return planned{own}
}

var plainJSONIdentifier = json.NewSerializerWithOptions(nil, nil, nil, json.SerializerOptions{}).Identifier()

// Encode writes an object with one Write. The line break after it may be missing.
func (p planned) Encode(o runtime.Object, w io.Writer) error {
	b := takeBuffer()
	defer func() { giveBuffer(b) }()
	var ok bool
	if b, ok = objectjson.Append(b, o); !ok {
		return p.Serializer.Encode(o, w)
	}
	_, err := w.Write(b)
	return err
}
