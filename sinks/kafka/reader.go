package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// reader reads the committed records of the state topic, in order.
type reader struct {
	client  *kgo.Client
	topic   string
	started bool
	next    int64 // offset
}

// newReader returns a reader. The caller closes its client.
func (t target) newReader() (*reader, error) {
	// The record that ends a transaction has the last offset: it shows that all was read.
	client, err := t.connect(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	return &reader{client: client, topic: t.state}, nil
}

// read adds the records to a fold that were committed when it was called, and were not read before.
func (r *reader) read(ctx context.Context, f *fold) error {
	admin := kadm.NewClient(r.client)
	first, err := offset(ctx, r.topic, admin.ListStartOffsets)
	if err != nil {
		return err
	}
	end, err := offset(ctx, r.topic, admin.ListCommittedOffsets)
	if err != nil {
		return err
	}
	if !r.started {
		// A client that is given a topic which does not exist yet looks for it every five minutes.
		r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: {0: kgo.NewOffset().AtStart()}})
		r.started = true
	}
	for r.next = max(r.next, first); r.next < end; {
		if err := r.poll(ctx, f); err != nil {
			return fmt.Errorf("topic %s at offset %d of %d: %w", r.topic, r.next, end, err)
		}
	}
	return nil
}

// poll adds the next records. It waits for answerTimeout at most.
func (r *reader) poll(ctx context.Context, f *fold) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	fetches := r.client.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		return err
	}
	for record := range fetches.RecordsAll() {
		r.next = record.Offset + 1
		if record.Attrs.IsControl() {
			continue
		}
		if err := f.add(record.Key, record.Value); err != nil {
			return refusal{err}
		}
	}
	return nil
}

// offset returns an offset of the only partition of a topic.
func offset(ctx context.Context, topic string, list func(context.Context, ...string) (kadm.ListedOffsets, error)) (
	int64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	all, err := list(ctx, topic)
	if err != nil {
		return 0, err
	}
	found, ok := all.Lookup(topic, 0)
	if !ok {
		return 0, fmt.Errorf("topic %s has no partition", topic)
	}
	return found.Offset, found.Err
}
