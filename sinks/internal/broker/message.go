package broker

import (
	"encoding/json"
	"fmt"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/shape"
)

// message is a message without its object. Revisions are text, as the API has them.
type message struct {
	Type      string               `json:"type"`
	Revision  *keepwatch.Revision  `json:"revision,omitempty,string"`
	From      *keepwatch.Revision  `json:"from,omitempty,string"`
	To        *keepwatch.Revision  `json:"to,omitempty,string"`
	Reason    *keepwatch.GapReason `json:"reason,omitempty"`
	Count     *uint64              `json:"count,omitempty"`
	ID        string               `json:"id,omitempty"`
	Epoch     int                  `json:"epoch,omitempty"` // see package sink
	Resource  string               `json:"resource"`
	Namespace string               `json:"namespace,omitempty"` // of the stream, if it has one
}

// Encode returns a message of a stream as one JSON object, in a shape: Debezium's envelope, or
//
//	{"type":"ADDED","revision":"123","id":"<uid>/123","resource":"pods","object":{…}}
//	{"type":"GAP","from":"125","to":"170","reason":"expired","resource":"pods"}
//	{"type":"SYNCED","revision":"170","count":41200,"resource":"pods"}
//
// The origin's epoch is that after the message, and it is left out if it is 0.
func Encode(s shape.Shape, o shape.Origin, m stream.Message) ([]byte, error) {
	if s == shape.Debezium {
		return s.Append(nil, o, withBody(m))
	}
	head := message{Type: TypeOf(m), Epoch: o.Epoch, Resource: o.ID.Resource, Namespace: o.ID.Namespace}
	switch m := m.(type) {
	case stream.Gap:
		head.From, head.To, head.Reason = &m.From, &m.To, &m.Reason
	case stream.Synced:
		head.Revision, head.Count = &m.Revision, &m.Count
	case stream.Bookmark:
		head.Revision = &m.Revision
	case stream.Event:
		head.Revision, head.ID = &m.Revision, m.ID
		return encodeEvent(head, m)
	}
	return json.Marshal(head)
}

func encodeEvent(head message, e stream.Event) ([]byte, error) {
	text, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	object := Body(e)
	if e.Type != keepwatch.Deleted && len(object) == 0 {
		return nil, fmt.Errorf("%s %s: the object has no body", e.Type, e.Object.Key())
	}
	out := make([]byte, 0, len(text)+len(object)+len(`,"object":`))
	out = append(out, text[:len(text)-1]...)
	out = append(out, `,"object":`...)
	out = append(out, object...)
	return append(out, '}'), nil
}

// withBody returns a message whose object has a body; see [Body].
func withBody(m stream.Message) stream.Message {
	if e, ok := m.(stream.Event); ok {
		e.Object = bodied{e.Object, Body(e)}
		return e
	}
	return m
}

// bodied is an object with another body.
type bodied struct {
	stream.Object
	body []byte
}

func (o bodied) JSON() []byte { return o.body }

// TypeOf returns the type of a message: ADDED, MODIFIED, DELETED, GAP, SYNCED or BOOKMARK.
func TypeOf(m stream.Message) string {
	switch m := m.(type) {
	case stream.Event:
		return m.Type.String()
	case stream.Gap:
		return "GAP"
	case stream.Synced:
		return "SYNCED"
	}
	return "BOOKMARK"
}

// Body returns the object of an event. That of a deletion within a gap is its name, UID and last revision: the
// consumer has the last state.
func Body(e stream.Event) []byte {
	text := e.Object.JSON()
	if len(text) > 0 || e.Type != keepwatch.Deleted {
		return text
	}
	key := e.Object.Key()
	var known struct {
		Metadata struct {
			Namespace       string             `json:"namespace,omitempty"`
			Name            string             `json:"name"`
			UID             keepwatch.UID      `json:"uid"`
			ResourceVersion keepwatch.Revision `json:"resourceVersion,string"`
		} `json:"metadata"`
	}
	known.Metadata.Namespace, known.Metadata.Name = key.Namespace, key.Name
	known.Metadata.UID, known.Metadata.ResourceVersion = e.Object.UID(), e.Object.Revision()
	text, err := json.Marshal(known)
	if err != nil {
		panic(err) // strings and a number
	}
	return text
}
