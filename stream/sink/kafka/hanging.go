package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The coordinator of a transaction answers when its decision is durable. Later it writes the markers that end the transaction in
// each partition. Some versions of Kafka (4.3.1 for one) write none into a partition that has no leader at that moment, as after a kill of
// its only broker, and then consider the transaction complete (KAFKA-20734). In that partition it hangs: consumers wait for its end,
// and the producer's next transaction decides about both.
//
// So a transaction begins only when the previous one has ended in all of its partitions (awaitMarkers), and at most one hangs. Open
// ends it as the coordinator had decided (findOpen, endHanging).

const (
	// markersTimeout bounds the wait for markers, which are written within milliseconds.
	markersTimeout = 5 * time.Second
	// markersPoll is the first interval in which the sink asks for markers. They double, up to markersPollMost.
	markersPoll, markersPollMost = time.Millisecond, 64 * time.Millisecond
)

// awaitMarkers waits until the transaction of records, which are acknowledged, has ended in all of their partitions.
func (s *Sink) awaitMarkers(ctx context.Context, records []*kgo.Record) error {
	open := map[string]map[int32]int64{} // the last offset of the transaction
	for _, r := range records {
		if open[r.Topic] == nil {
			open[r.Topic] = map[int32]int64{}
		}
		open[r.Topic][r.Partition] = max(open[r.Topic][r.Partition], r.Offset)
	}
	ctx, cancel := context.WithTimeout(ctx, markersTimeout)
	defer cancel()
	for wait := markersPoll; ; wait = min(2*wait, markersPollMost) {
		if err := removeEnded(ctx, s.client, open); err != nil || len(open) == 0 {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("the broker has not shown a transaction to consumers of %v within %v: %w",
				slices.Sorted(maps.Keys(open)), markersTimeout, context.Cause(ctx))
		}
	}
}

// removeEnded removes the partitions whose last stable offset is behind the given one.
func removeEnded(ctx context.Context, client *kgo.Client, open map[string]map[int32]int64) error {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID, request.IsolationLevel = -1, 1 // of a client, read_committed
	for name, partitions := range open {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = name
		for number := range partitions {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = number, -1 // the end
			t.Partitions = append(t.Partitions, p)
		}
		request.Topics = append(request.Topics, t)
	}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && !kerr.IsRetriable(err) {
				return fmt.Errorf("topic %s: %w", t.Topic, err)
			} else if err == nil && p.Offset > open[t.Topic][p.Partition] {
				delete(open[t.Topic], p.Partition)
			}
		}
		if len(open[t.Topic]) == 0 {
			delete(open, t.Topic)
		}
	}
	return nil
}

// openTransactions is what was known about transactions before this process claimed the transactional id.
type openTransactions struct {
	partitions kadm.TopicsSet // which have one, of any producer
	state      string         // of the newest transaction of the transactional id, in the coordinator's words
}

// findOpen looks for open transactions in topics.
func (t target) findOpen(ctx context.Context, admin *kadm.Client, topics map[string]topic) (open openTransactions, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	names := slices.Collect(maps.Keys(topics))
	stable, err := listed(admin.ListCommittedOffsets(ctx, names...))
	if err != nil {
		return open, err
	}
	ends, err := listed(admin.ListEndOffsets(ctx, names...))
	if err != nil {
		return open, err
	}
	ends.Each(func(end kadm.ListedOffset) {
		if found, ok := stable.Lookup(end.Topic, end.Partition); !ok || found.Offset < end.Offset {
			open.partitions.Add(end.Topic, end.Partition)
		}
	})
	if len(open.partitions) == 0 {
		return open, nil
	}
	described, err := admin.DescribeTransactions(ctx, t.state)
	if err == nil {
		err = described[t.state].Err
	}
	if errors.Is(err, kerr.TransactionalIDNotFound) {
		return open, nil
	}
	open.state = described[t.state].State
	return open, err
}

func listed(offsets kadm.ListedOffsets, err error) (kadm.ListedOffsets, error) {
	if err == nil {
		err = offsets.Error()
	}
	return offsets, err
}

// endHanging ends the transaction of this producer that hangs, if one does. It was open before the claim, which ends all others.
func (s *Sink) endHanging(ctx context.Context, admin *kadm.Client, open openTransactions) error {
	if len(open.partitions) == 0 {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	id, _, err := s.client.ProducerID(asking)
	if err != nil {
		return err
	}
	described, err := admin.DescribeProducers(asking, open.partitions)
	if err != nil {
		return err
	}
	var hanging []*kgo.Record
	stateHangs := false
	for _, p := range described.SortedPartitions() {
		if p.Err != nil {
			return fmt.Errorf("producers of topic %s: %w", p.Topic, p.Err)
		}
		if own, ok := p.ActiveProducers[id]; ok && own.CurrentTxnStartOffset >= 0 {
			hanging = append(hanging, s.ending(p.Topic, p.Partition))
			stateHangs = stateHangs || p.Topic == s.target.state
		}
	}
	if len(hanging) == 0 {
		return nil
	}
	return s.transact(ctx, hanging, open.decision(stateHangs))
}

// decision returns how to end a transaction that hangs. If the coordinator's decision is lost, because a process has ended
// between claim and endHanging, its events are in their topics at least once: they are written again if the cursors behind them are not committed.
func (o openTransactions) decision(stateHangs bool) kgo.TransactionEndTry {
	switch o.state {
	case "PrepareCommit", "CompleteCommit":
		return kgo.TryCommit
	case "PrepareAbort", "CompleteAbort", "Ongoing", "PrepareEpochFence": // the claim has ended one that was not decided
		return kgo.TryAbort
	}
	return kgo.TransactionEndTry(!stateHangs)
}

// ending returns a record without a meaning, for a transaction that ends one which hangs: a tombstone of no object.
func (s *Sink) ending(topic string, partition int32) *kgo.Record {
	if topic == s.target.state {
		return s.stateRecord(nil, objectKey, "", "", "")
	}
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte("/")}
}
