package stream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// ndjsonSink writes one JSON object a line. It copies the text of an object unchanged,
// except for line breaks.
type ndjsonSink struct {
	out    *bufio.Writer
	middle []byte // the bytes of an event between its id and its object
}

// NDJSON returns a sink that writes messages to out as lines of JSON:
//
//	{"type":"ADDED","revision":"123","id":"<uid>/123","resource":"pods","object":{…}}
//	{"type":"SYNCED","revision":"125","count":41200}
//	{"type":"GAP","from":"125","to":"170","reason":"expired"}
//	{"type":"BOOKMARK","revision":"180"}
//
// Events are watch events of the Kubernetes API with three more fields; resource is the
// value of the field resource. A line ends with "\n", and contains no other line break.
func NDJSON(out io.Writer, resource string) Sink {
	name, err := json.Marshal(resource)
	if err != nil {
		panic(err) // a string
	}
	return &ndjsonSink{
		out:    bufio.NewWriterSize(out, 256<<10),
		middle: append(append([]byte(`","resource":`), name...), `,"object":`...),
	}
}

func (s *ndjsonSink) Write(m Message) error {
	switch m := m.(type) {
	case Event:
		return s.event(m)
	case Gap:
		return s.line(`{"type":"GAP","from":"%d","to":"%d","reason":"%s"}`, m.From, m.To, m.Reason)
	case Synced:
		return s.line(`{"type":"SYNCED","revision":"%d","count":%d}`, m.Revision, m.Count)
	case Bookmark:
		return s.line(`{"type":"BOOKMARK","revision":"%d"}`, m.Revision)
	}
	panic(fmt.Sprintf("stream: unknown message %T", m))
}

func (s *ndjsonSink) line(format string, args ...any) error {
	_, err := fmt.Fprintf(s.out, format+"\n", args...)
	return err
}

// event checks the last write only, because the errors of a bufio.Writer are sticky.
func (s *ndjsonSink) event(e Event) error {
	object, err := compact(e.Object.JSON())
	if err != nil {
		return fmt.Errorf("%s %s: %w", e.Type, e.Object.Key(), err)
	}
	head := s.out.AvailableBuffer()
	head = append(head, `{"type":"`...)
	head = append(head, e.Type.String()...)
	head = append(head, `","revision":"`...)
	head = strconv.AppendUint(head, uint64(e.Revision), 10)
	head = append(head, `","id":"`...)
	head = appendEscaped(head, e.ID)
	head = append(head, s.middle...)
	_, _ = s.out.Write(head)
	_, _ = s.out.Write(object)
	_, err = s.out.WriteString("}\n")
	return err
}

func (s *ndjsonSink) Flush() error { return s.out.Flush() }

// compact removes the line breaks of a JSON text: outside of strings, where it can only
// be white space.
func compact(text []byte) ([]byte, error) {
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return text, nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// appendEscaped appends s as a JSON string without its quotes. A server chooses the UIDs,
// and the API does not restrict their characters.
func appendEscaped(text []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string
			}
			return append(text, quoted[1:len(quoted)-1]...)
		}
	}
	return append(text, s...)
}
