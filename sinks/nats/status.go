package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Status connects and reads the cursors of the bucket. See [sink.Reader].
func (s *Sink) Status(ctx context.Context) ([]sink.Status, error) {
	reader := &Sink{target: s.target}
	defer reader.Close()
	all, err := reader.readStatus(ctx)
	if err != nil {
		return nil, reader.failure(err)
	}
	return all, nil
}

func (s *Sink) readStatus(ctx context.Context) ([]sink.Status, error) {
	if err := s.connect(); err != nil {
		return nil, err
	}
	name := "KV_" + s.target.bucket
	opened, err := s.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("there is no bucket %s of keepwatch sync", s.target.bucket)
	}
	if err != nil {
		return nil, err
	}
	s.bucket = newJournal(s.conn, s.js, opened, s.closed)
	if _, err := s.bucket.load(ctx); err != nil {
		return nil, err
	}
	f := newFold()
	if err := s.readCursors(ctx, f); err != nil {
		return nil, err
	}
	var all []sink.Status
	for _, c := range f.cursors {
		all = append(all, c.Status())
	}
	slices.SortFunc(all, func(a, b sink.Status) int {
		return cmp.Or(cmp.Compare(a.ID.Resource, b.ID.Resource), cmp.Compare(a.ID.Namespace, b.ID.Namespace))
	})
	return all, nil
}

// readCursors reads the cursors of the bucket.
func (s *Sink) readCursors(ctx context.Context, f *fold) error {
	cursors := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: s.prefix() +
		cursorsKey + ">"}
	return s.bucket.read(ctx, cursors, func(h nats.Header, _ uint64) error { return f.add(h) })
}
