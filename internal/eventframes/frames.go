// Package eventframes reads the frames of a Kubernetes watch as the server sent them, for judges that share no
// code with the clients and servers that they judge.
package eventframes

import (
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// maxFrame bounds a frame of protobuf, in bytes.
const maxFrame = 1 << 20

// Frame is one event of a watch. Its object is in the encoding of the watch.
type Frame struct {
	Type   string
	Object json.RawMessage
}

// Reader returns a function that reads the frames of a watch in JSON or protobuf one by one. Its error is io.EOF
// behind a whole frame, and another one within a frame, or if a frame cannot be decoded or has more than 1 MiB.
func Reader(body io.ReadCloser, isProtobuf bool) func() (Frame, error) {
	if !isProtobuf {
		decoder := json.NewDecoder(body)
		return func() (f Frame, err error) {
			err = decoder.Decode(&f)
			return f, err
		}
	}
	framer := protobuf.LengthDelimitedFramer.NewFrameReader(body)
	buffer := make([]byte, maxFrame)
	return func() (Frame, error) {
		n, err := framer.Read(buffer)
		if err != nil {
			return Frame{}, err
		}
		var read metav1.WatchEvent
		if err := read.Unmarshal(buffer[:n]); err != nil {
			return Frame{}, fmt.Errorf("frame of %d bytes: %w", n, err)
		}
		return Frame{read.Type, read.Object.Raw}, nil
	}
}
