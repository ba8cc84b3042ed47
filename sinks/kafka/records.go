package kafka

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/broker"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/shape"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// records returns the records of a piece for its topic and for the state topic, without the cursor.
func (s *Sink) records(p sink.Piece, now time.Time) (all []*kgo.Record, err error) {
	f := s.streams[p.Stream]
	id, progress := f.cursor.Identity, p.Before
	for _, m := range p.Messages {
		progress = progress.Message(m)
		origin := shape.Origin{ID: id, Epoch: progress.Epoch, Snapshot: !p.Before.Started(), Time: now}
		value, err := broker.Encode(s.target.shape, origin, m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id.Resource, err)
		}
		e, ok := m.(stream.Event)
		if !ok {
			for partition := range f.topic.partitions {
				all = append(all, &kgo.Record{Topic: f.topic.name, Key: streamKey(id), Value: value, Partition: int32(partition)})
			}
			continue
		}
		all = append(all, s.eventRecord(f.topic, e, value))
		if e.Type == keepwatch.Deleted {
			all = append(all, s.eventRecord(f.topic, e, nil)) // a tombstone, for a topic that is compacted
		}
		all = append(all, s.objectRecord(id.Resource, e))
	}
	return all, nil
}

// eventRecord returns a record of an object. Its partition is the one that the clients of Java choose for the key.
func (s *Sink) eventRecord(t topic, e stream.Event, value []byte) *kgo.Record {
	r := &kgo.Record{Topic: t.name, Key: []byte(e.Object.UID()), Value: value}
	r.Partition = int32(s.partitioner.Partition(r, t.partitions))
	return r
}

// streamKey is the key of records that concern no object: a compacted topic needs one, and no UID has a slash.
func streamKey(id stream.Identity) []byte { return []byte(id.Resource + "/" + id.Namespace) }
