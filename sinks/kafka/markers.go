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

	"github.com/keepwatch/keepwatch/internal/pause"
)

const (
	// markersPoll is the first interval in which the sink asks whether a transaction has ended everywhere. They double, up
	// to markersPollMax.
	markersPoll, markersPollMax = time.Millisecond, 64 * time.Millisecond
	// markersSoon is how long it asks only for offsets. Markers are written within milliseconds.
	markersSoon = 250 * time.Millisecond
)

// lastOffsets returns the last offset of acknowledged records in each of their partitions.
func lastOffsets(records []*kgo.Record) (offsets, error) {
	last := offsets{}
	for _, r := range records {
		if r.Offset < 0 {
			return nil, fmt.Errorf("topic %s: the broker has a record already, and does not know where", r.Topic)
		}
		last.set(r.Topic, r.Partition, max(last[r.Topic][r.Partition], r.Offset))
	}
	return last, nil
}

// awaitEnd waits until the transaction of a producer has ended in the partitions of open, which has an offset of it in
// each. It returns an error at once if it hangs.
func (s *Sink) awaitEnd(ctx context.Context, producer int64, open offsets) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	began := time.Now()
	for wait := markersPoll; len(open) > 0; wait = min(2*wait, markersPollMax) {
		if err := removeEnded(ctx, s.client, open); err != nil {
			return err
		}
		if len(open) > 0 && time.Since(began) > markersSoon {
			if err := retriable(s.checkCompleted(ctx, producer, open)); err != nil {
				return err
			}
		}
		if len(open) == 0 {
			return nil
		}
		if pause.For(ctx, wait) != nil {
			return fmt.Errorf("a transaction is not ended in the topics %v: %w", slices.Sorted(maps.Keys(open)),
				context.Cause(ctx))
		}
	}
	return nil
}

// removeEnded removes the partitions whose last stable offset is greater than that of open.
func removeEnded(ctx context.Context, client *kgo.Client, open offsets) error {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID, request.IsolationLevel = -1, 1 // of a client, read_committed
	for topic, partitions := range open {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for number := range partitions {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = number, -1 // the end
			t.Partitions = append(t.Partitions, p)
		}
		request.Topics = append(request.Topics, t)
	}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return retriable(err)
	}
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			err := kerr.ErrorForCode(p.ErrorCode)
			if err := retriable(err); err != nil {
				return fmt.Errorf("topic %s: %w", t.Topic, err)
			}
			if err == nil && p.Offset > open[t.Topic][p.Partition] {
				open.remove(t.Topic, p.Partition)
			}
		}
	}
	return nil
}

// retriable returns nil for an error after which the same request may succeed.
func retriable(err error) error {
	if kerr.IsRetriable(err) {
		return nil
	}
	return err
}

// checkCompleted asks the coordinator. If it has completed the transaction, the partitions of open have others, of
// other producers, and it removes them, or the transaction hangs, which is an error.
func (s *Sink) checkCompleted(ctx context.Context, producer int64, open offsets) error {
	admin := kadm.NewClient(s.client)
	newest, err := s.describe(ctx, admin)
	if errors.Is(err, errUndescribed) {
		clear(open)
		return nil
	}
	if err != nil || newest.State == "PrepareCommit" || newest.State == "PrepareAbort" {
		return err
	}
	all, err := openTransactions(ctx, admin, open.partitions())
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.ProducerID == producer && p.CurrentTxnStartOffset <= open[p.Topic][p.Partition] {
			return fmt.Errorf("the broker has completed a transaction that it left open in the topic %s (KAFKA-20734)", p.Topic)
		}
	}
	clear(open)
	return nil
}
