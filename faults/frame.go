package faults

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
)

// maxFrame bounds one event. API servers refuse objects far smaller than it.
const maxFrame = 64 << 20

// framing is how a watch's body is divided into events.
type framing interface {
	// read returns the next whole frame, with its delimiter.
	read(*bufio.Reader) ([]byte, error)
	// errorEvent is a frame with an ERROR event.
	errorEvent(*metav1.Status) ([]byte, error)
	// garbage returns a whole frame whose content cannot be decoded.
	garbage() []byte
	// torn is the beginning of a frame.
	torn() []byte
}

// framingOf returns the framing of a watch's answer, or nil if it isn't one or
// has another encoding.
func framingOf(response *http.Response) framing {
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Encoding") != "" {
		return nil
	}
	switch media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); media {
	case "application/json":
		return lines{}
	case "application/vnd.kubernetes.protobuf":
		return delimited{}
	default:
		return nil
	}
}

// lines is one JSON object a line.
type lines struct{}

func (lines) read(r *bufio.Reader) ([]byte, error) {
	var frame []byte
	for {
		part, err := r.ReadSlice('\n')
		frame = append(frame, part...)
		switch {
		case err == nil:
			return frame, nil
		case err == io.EOF && len(frame) > 0:
			return frame, io.ErrUnexpectedEOF
		case err != bufio.ErrBufferFull:
			return frame, err
		case len(frame) > maxFrame:
			return frame, fmt.Errorf("frame of more than %d bytes", maxFrame)
		}
	}
}

func (lines) errorEvent(status *metav1.Status) ([]byte, error) {
	object, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	frame, err := json.Marshal(metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: object}})
	return append(frame, '\n'), err
}

func (lines) garbage() []byte { return []byte("{\"type\":\"MODIFIED\",\"object\":{]}\n") }

func (lines) torn() []byte { return []byte(`{"type":"MODIFIED","object":{"kind":"Po`) }

// delimited is protobuf: each message follows its length in 4 bytes.
type delimited struct{}

func (delimited) read(r *bufio.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if n, err := io.ReadFull(r, head); err != nil {
		return head[:n], err
	}
	length := binary.BigEndian.Uint32(head)
	if length > maxFrame {
		return head, fmt.Errorf("frame of more than %d bytes", maxFrame)
	}
	frame := append(head, make([]byte, length)...)
	n, err := io.ReadFull(r, frame[4:])
	if err == io.EOF && length > 0 {
		err = io.ErrUnexpectedEOF
	}
	return frame[:4+n], err
}

func (delimited) errorEvent(status *metav1.Status) ([]byte, error) {
	var object bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(status, &object); err != nil {
		return nil, err
	}
	event := metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: object.Bytes()}}
	message, err := event.Marshal()
	return delimit(message), err
}

func (delimited) garbage() []byte { return delimit([]byte("\xff\xff\xff\xffgarbage")) }

func (delimited) torn() []byte { return delimit(make([]byte, 64))[:16] }

func delimit(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}
