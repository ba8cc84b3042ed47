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
	_, _ = s.out.Write(append(appendHead(s.out.AvailableBuffer(), e), s.middle...))
	_, _ = s.out.Write(object)
	_, err = s.out.WriteString("}\n")
	return err
}

// appendHead appends an event up to its id.
func appendHead(text []byte, e Event) []byte {
	text = append(text, `{"type":"`...)
	text = append(text, e.Type.String()...)
	text = append(text, `","revision":"`...)
	text = strconv.AppendUint(text, uint64(e.Revision), 10)
	text = append(text, `","id":"`...)
	return appendEscaped(text, e.ID)
}

// AppendEvent appends an event to text as [NDJSON] writes it, without the line break.
func AppendEvent(text []byte, e Event, resource string) ([]byte, error) {
	text = append(appendHead(text, e), `","resource":"`...)
	text = append(appendEscaped(text, resource), `","object":`...)
	text, err := AppendObject(text, e.Object)
	return append(text, '}'), err
}

// AppendObject appends the JSON of an object to text, without line breaks.
func AppendObject(text []byte, o Object) ([]byte, error) {
	object, err := compact(o.JSON())
	if err != nil {
		return text, fmt.Errorf("%s: %w", o.Key(), err)
	}
	return append(text, object...), nil
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
