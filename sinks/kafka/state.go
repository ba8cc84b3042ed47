package kafka

import (
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/broker"
	"github.com/keepwatch/keepwatch/stream"
)

// cursor is the cursor of a stream: a record with the key ["cursor",RESOURCE,NAMESPACE].
type cursor struct {
	broker.Cursor
	Topic   string `json:"topic"`
	TopicID string `json:"topicID"`
	// Partitions is the number of partitions that the topic had at first: with another one, an object would have another
	// partition.
	Partitions int `json:"partitions"`
}

// object is a delivered object: a record with the key ["object",RESOURCE,NAMESPACE,NAME].
type object struct {
	UID      keepwatch.UID      `json:"uid"`
	Revision keepwatch.Revision `json:"revision"`
	stream.Rendition
}

const (
	cursorKey = "cursor"
	objectKey = "object"
)

func (s *Sink) cursorRecord(c *cursor) *kgo.Record {
	return s.stateRecord(c, cursorKey, c.Identity.Resource, c.Identity.Namespace)
}

// objectRecord returns the record of an object after an event.
func (s *Sink) objectRecord(resource string, e stream.Event) *kgo.Record {
	key := e.Object.Key()
	if e.Type == keepwatch.Deleted {
		return s.stateRecord(nil, objectKey, resource, key.Namespace, key.Name)
	}
	return s.stateRecord(object{e.Object.UID(), e.Revision, e.Rendition}, objectKey, resource, key.Namespace, key.Name)
}

// stateRecord returns a record of the state topic; nil is a tombstone.
func (s *Sink) stateRecord(value any, key ...string) *kgo.Record {
	r := &kgo.Record{Topic: s.target.state, Key: encode(key)}
	if value != nil {
		r.Value = encode(value)
	}
	return r
}

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // texts and numbers; a position is JSON
	}
	return text
}

// fold is what the records of the state topic add up to.
type fold struct {
	objects *broker.Index
	cursors broker.Cursors[*cursor]
}

func newFold() *fold {
	return &fold{objects: broker.NewIndex(), cursors: broker.Cursors[*cursor]{}}
}

// topics returns the topics of all streams that were stored.
func (f *fold) topics() (names []string) {
	for _, c := range f.cursors {
		if c.Topic != "" {
			names = append(names, c.Topic)
		}
	}
	return names
}

func (f *fold) add(key, value []byte) error {
	var names []string
	if err := json.Unmarshal(key, &names); err != nil {
		return fmt.Errorf("the key %q: %w", key, err)
	}
	switch {
	case len(names) == 3 && names[0] == cursorKey && value != nil:
		c := &cursor{}
		f.cursors[broker.StreamKey{Resource: names[1], Namespace: names[2]}] = c
		return json.Unmarshal(value, c)
	case len(names) == 4 && names[0] == objectKey:
		at := keepwatch.Key{Namespace: names[2], Name: names[3]}
		if value == nil {
			f.objects.Remove(names[1], at)
			return nil
		}
		var o object
		err := json.Unmarshal(value, &o)
		f.objects.Put(names[1], stream.Entry{Key: at, UID: o.UID, Revision: o.Revision, Rendition: o.Rendition})
		return err
	}
	return fmt.Errorf("the key %q is not known", key)
}
