package shape

import (
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch/stream"
)

// Shape is a format of messages. The set is closed: Events, Debezium.
type Shape int

// The shapes.
const (
	Events Shape = iota
	Debezium
)

var names = [...]string{Events: "events", Debezium: "debezium"}

// Parse returns the shape of a name: events or debezium. The empty name is events.
func Parse(name string) (Shape, error) {
	for s, known := range names {
		if name == known || name == "" {
			return Shape(s), nil
		}
	}
	return 0, fmt.Errorf("the shape must be events or debezium, not %q", name)
}

func (s Shape) String() string { return names[s] }

// Origin is what the messages of a stream do not say about themselves.
type Origin struct {
	ID    stream.Identity
	Epoch int // how often the source was restored from a backup
	// Snapshot is true for messages of a first list.
	Snapshot bool
	Time     time.Time // of the delivery
}

// Append appends a message to text. It returns an error for an object whose JSON has a syntax error.
func (s Shape) Append(text []byte, o Origin, m stream.Message) ([]byte, error) {
	if s == Debezium {
		return appendEnvelope(text, o, m)
	}
	return appendLine(text, o, m)
}
