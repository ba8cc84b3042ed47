package faults

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"mime"
	"net/http"
)

// maxFrame bounds one event. API servers refuse objects far smaller than it.
const maxFrame = 64 << 20

// framing is how a watch's body is divided into events, and how these are encoded.
type framing struct {
	envelope
	encoding
}

// envelope is what a message becomes on the wire.
type envelope interface {
	// read returns the next whole frame, and the message in it. A frame that is not an event has
	// no message.
	read(*bufio.Reader) (whole, message []byte, err error)
	// wrap returns a whole frame.
	wrap(message []byte) []byte
	// torn is the beginning of a frame.
	torn() []byte
	// end is what precedes a clean end.
	end() []byte
}

// framingOf returns the framing of a watch's answer, or nil if it isn't one or
// has another encoding.
func framingOf(response *http.Response) *framing {
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Encoding") != "" {
		return nil
	}
	switch media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); media {
	case "application/json":
		return &framing{lines{}, jsonEvents{}}
	case "application/vnd.kubernetes.protobuf":
		return &framing{delimited{}, protobufEvents{}}
	default:
		return nil
	}
}

// lines is one JSON object a line.
type lines struct{}

func (lines) read(r *bufio.Reader) (whole, message []byte, err error) {
	var frame []byte
	for {
		part, err := r.ReadSlice('\n')
		frame = append(frame, part...)
		switch {
		case err == nil:
			return frame, frame, nil
		case err == io.EOF && len(frame) > 0:
			return frame, nil, io.ErrUnexpectedEOF
		case err != bufio.ErrBufferFull:
			return frame, nil, err
		case len(frame) > maxFrame:
			return frame, nil, errTooLarge()
		}
	}
}

func errTooLarge() error { return fmt.Errorf("frame of more than %d bytes", maxFrame) }

func (lines) wrap(message []byte) []byte { return append(message[:len(message):len(message)], '\n') }

func (lines) torn() []byte { return []byte(`{"type":"MODIFIED","object":{"kind":"Po`) }

func (lines) end() []byte { return nil }

// delimited is protobuf: each message follows its length in 4 bytes.
type delimited struct{}

func (delimited) read(r *bufio.Reader) (whole, message []byte, err error) {
	head := make([]byte, 4)
	if n, err := io.ReadFull(r, head); err != nil {
		return head[:n], nil, err
	}
	length := binary.BigEndian.Uint32(head)
	if length > maxFrame {
		return head, nil, errTooLarge()
	}
	return readPayload(r, head, int(length))
}

// readPayload reads a frame's message behind its head.
func readPayload(r io.Reader, head []byte, length int) (whole, message []byte, err error) {
	frame := append(head, make([]byte, length)...)
	n, err := io.ReadFull(r, frame[len(head):])
	if err == io.EOF && length > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return frame[:len(head)+n], nil, err
	}
	return frame, frame[len(head):], nil
}

func (delimited) wrap(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

func (delimited) torn() []byte { return delimited{}.wrap(make([]byte, 64))[:16] }

func (delimited) end() []byte { return nil }
