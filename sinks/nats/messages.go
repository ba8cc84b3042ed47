package nats

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/broker"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/shape"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// markerTTL is how long a bucket has the marker of a deleted object. Until then a source may repeat the events of the
// object that were delivered before a crash.
const markerTTL = 24 * time.Hour

// item is a message of a piece with what it says about itself.
type item struct {
	change
	message stream.Message
}

// items returns the messages of a piece, without the events that were delivered before a crash.
func (s *Sink) items(p sink.Piece) []item {
	id, c := s.streams[p.Stream].ID, s.cursors[p.Stream]
	progress := p.Before
	var all []item
	for _, m := range p.Messages {
		progress = progress.Message(m)
		x := change{Type: broker.TypeOf(m), Resource: id.Resource, Scope: id.Namespace, Epoch: progress.Epoch}
		switch m := m.(type) {
		case stream.Gap:
			clear(c.deleted)
			x.Reason = progress.Gap
		case stream.Event:
			if c.repeats(m) {
				continue
			}
			key := m.Object.Key()
			x.Revision, x.ID, x.Namespace, x.Name, x.UID = m.Revision, m.ID, key.Namespace, key.Name, m.Object.UID()
			x.Rendition = m.Rendition
		}
		all = append(all, item{x, m})
	}
	return all
}

// logMessages returns the messages of a piece for the stream. The last one has no cursor yet. They have no Nats-Msg-Id:
// a source that was restored from a backup has its ids again, and JetStream would drop them.
func (s *Sink) logMessages(o shape.Origin, items []item) (messages []*nats.Msg, err error) {
	for _, i := range items {
		m := nats.NewMsg(s.subjectOf(i.change))
		o.Epoch = i.Epoch
		if m.Data, err = broker.Encode(s.target.shape, o, i.message); err != nil {
			return nil, err
		}
		setHeader(m.Header, changeHeader, i.change)
		messages = append(messages, m)
	}
	if len(messages) == 0 {
		x := change{Type: "CURSOR", Resource: o.ID.Resource, Scope: o.ID.Namespace}
		messages = append(messages, nats.NewMsg(s.subjectOf(x)))
	}
	return messages, nil
}

func (s *Sink) subjectOf(x change) string {
	return s.target.subject.Expand(func(placeholder string) string {
		switch placeholder {
		case "resource":
			return token(x.Resource)
		case "namespace":
			return token(x.Namespace)
		case "name":
			return token(x.Name)
		}
		return strings.ToLower(x.Type)
	})
}

// prefix begins the subjects of the bucket.
func (s *Sink) prefix() string { return "$KV." + s.target.bucket + "." }

// bucketMessages returns the messages of objects for the bucket.
func (s *Sink) bucketMessages(items []item) (messages []*nats.Msg, err error) {
	for _, i := range items {
		e, ok := i.message.(stream.Event)
		if !ok {
			continue
		}
		m := s.bucketMessage(i.change)
		if s.log == nil && e.Type != keepwatch.Deleted {
			if m.Data = broker.Body(e); len(m.Data) == 0 {
				return nil, fmt.Errorf("%s %s: the object has no body", e.Type, e.Object.Key())
			}
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// bucketMessage returns the message of an object for the bucket, without body.
func (s *Sink) bucketMessage(x change) *nats.Msg {
	m := nats.NewMsg(s.prefix() + token(x.Resource) + "." + token(x.Namespace) + "." + token(x.Name))
	setHeader(m.Header, changeHeader, x)
	if x.Type == keepwatch.Deleted.String() {
		m.Header["KV-Operation"] = []string{"DEL"}
		m.Header[jetstream.MsgTTLHeader] = []string{markerTTL.String()}
	}
	return m
}

// cursorMessage returns the message of a cursor for the bucket.
func (s *Sink) cursorMessage(c *cursor) *nats.Msg {
	m := nats.NewMsg(s.prefix() + cursorsKey + token(c.Identity.Resource) + "." + token(c.Identity.Namespace))
	setHeader(m.Header, cursorHeader, c)
	return m
}

// cursorsKey begins the keys of cursors. No resource has an underscore.
const cursorsKey = "_cursors."
