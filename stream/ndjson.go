package stream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// ndjson writes one JSON object a line. The objects' own text is passed on as it
// is.
type ndjson struct {
	out    *bufio.Writer
	middle []byte // of an event, between its id and its object
}

// NDJSON writes messages to out as lines of JSON:
//
//	{"type":"ADDED","revision":"123","id":"<uid>/123","resource":"pods","object":{…}}
//	{"type":"SYNCED","revision":"125","count":41200}
//	{"type":"GAP","from":"125","to":"170","reason":"expired"}
//	{"type":"BOOKMARK","revision":"180"}
//
// Events are watch events of the Kubernetes API with three more fields; resource
// is the name that the events are given. A line ends with "\n", and contains none.
func NDJSON(out io.Writer, resource string) Sink {
	name, err := json.Marshal(resource)
	if err != nil {
		panic(err) // a string
	}
	return &ndjson{
		out:    bufio.NewWriterSize(out, 256<<10),
		middle: append(append([]byte(`","resource":`), name...), `,"object":`...),
	}
}

func (s *ndjson) Write(m Message) error {
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

func (s *ndjson) line(format string, args ...any) error {
	_, err := fmt.Fprintf(s.out, format+"\n", args...)
	return err
}

// event relies on bufio.Writer's errors being sticky: the last one tells.
func (s *ndjson) event(e Event) error {
	object, err := oneLine(e.Object.JSON())
	if err != nil {
		return fmt.Errorf("%s %s: %w", e.Type, e.Object.Key(), err)
	}
	head := s.out.AvailableBuffer()
	head = append(head, `{"type":"`...)
	head = append(head, e.Type.String()...)
	head = append(head, `","revision":"`...)
	head = strconv.AppendUint(head, uint64(e.Revision), 10)
	head = append(head, `","id":"`...)
	head = appendInside(head, e.ID)
	head = append(head, s.middle...)
	_, _ = s.out.Write(head)
	_, _ = s.out.Write(object)
	_, err = s.out.WriteString("}\n")
	return err
}

func (s *ndjson) Flush() error { return s.out.Flush() }

// oneLine makes sure that a JSON text has no line break in it: there it can only
// be white space.
func oneLine(text []byte) ([]byte, error) {
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return text, nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// appendInside appends s as the inside of a JSON string. A UID is the server's,
// but nobody promises what it consists of.
func appendInside(text []byte, s string) []byte {
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
