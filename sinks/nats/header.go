package nats

import (
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/broker"
	"github.com/keepwatch/keepwatch/stream"
)

const (
	// changeHeader has what a message says about an object or a gap, as JSON: Open reads only headers.
	changeHeader = "Keepwatch-Change"
	// cursorHeader has the cursor after the piece that ends with the message, as JSON.
	cursorHeader = "Keepwatch-Cursor"
	// writerHeader has the token of the process that has claimed the sink last, in a message of the bucket.
	writerHeader = "Keepwatch-Writer"
)

// change is an event or a gap of a stream.
type change struct {
	Type     string             `json:"type"` // as in the message
	Resource string             `json:"resource"`
	Scope    string             `json:"scope,omitempty"` // the namespace of the stream
	Revision keepwatch.Revision `json:"revision,omitempty"`
	ID       string             `json:"id,omitempty"`

	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name,omitempty"`
	UID       keepwatch.UID `json:"uid,omitempty"`
	stream.Rendition

	Epoch  int                 `json:"epoch,omitempty"` // after a gap
	Reason keepwatch.GapReason `json:"reason,omitempty"`
}

func (c change) key() keepwatch.Key { return keepwatch.Key{Namespace: c.Namespace, Name: c.Name} }

// cursor is the cursor of a stream.
type cursor struct {
	broker.Cursor
	// Sequence is that of the message in the stream up to which the bucket is complete, as far as it concerns this cursor.
	Sequence uint64 `json:"sequence,omitempty"`
	// deleted has the objects that were delivered as deleted behind the cursor, by a piece that a crash has cut in two:
	// the source will repeat their events. They are not in the header, whose size NATS limits: the bucket has their
	// markers.
	deleted map[string]change
}

func setHeader(h nats.Header, name string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings and numbers; a position is JSON
	}
	h[name] = []string{string(text)}
}

// readHeader decodes a header. It returns false if there is none.
func readHeader(h nats.Header, name string, value any) (bool, error) {
	text := h.Get(name)
	if text == "" {
		return false, nil
	}
	return true, json.Unmarshal([]byte(text), value)
}
