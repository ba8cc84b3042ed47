package kafkatest

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// Client returns a client that is closed with the test.
func (s *Server) Client(options ...kgo.Opt) *kgo.Client {
	s.tb.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.Addr()), kgo.MetadataMinAge(100 * time.Millisecond)},
		options...)...)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(client.Close)
	return client
}

// Consumer reads topics with read_committed. One goroutine calls its methods.
type Consumer struct {
	server   *Server
	admin    *kadm.Client
	client   *kgo.Client // nil until the topics exist
	topics   []string
	position map[partition]int64 // the next offset
	unread   []*kgo.Record       // of a read that failed
}

type partition struct {
	topic  string
	number int32
}

// Consume returns a consumer of topics from their beginning. Until they exist, its reads return an error.
func (s *Server) Consume(topics ...string) *Consumer {
	s.tb.Helper()
	return &Consumer{server: s, admin: kadm.NewClient(s.Client()), topics: topics, position: map[partition]int64{}}
}

// Records returns the records that were committed since the last call: everything that was committed before this call,
// in the order of each partition.
func (c *Consumer) Records(ctx context.Context) ([]*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, await.Deadline)
	defer cancel()
	ends, err := c.ends(ctx)
	if err != nil {
		return nil, err
	}
	if c.client == nil {
		c.start(ends)
	}
	for !c.complete(ends) {
		fetches := c.client.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) {
			c.position[partition{r.Topic, r.Partition}] = r.Offset + 1
			if !r.Attrs.IsControl() {
				c.unread = append(c.unread, r)
			}
		})
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read up to %v, at %v: %w", ends, c.position, err)
		}
	}
	records := c.unread
	c.unread = nil
	return records, nil
}

// ends returns the ends of all partitions, after each transaction in front of them was ended: Kafka answers a commit
// that is durable, and then shows it to the consumers of each partition.
func (c *Consumer) ends(ctx context.Context) (kadm.ListedOffsets, error) {
	ends, err := c.list(ctx, c.admin.ListEndOffsets)
	for err == nil {
		var committed kadm.ListedOffsets
		if committed, err = c.list(ctx, c.admin.ListCommittedOffsets); err != nil {
			break
		}
		open := false
		ends.Each(func(o kadm.ListedOffset) {
			found, _ := committed.Lookup(o.Topic, o.Partition)
			open = open || found.Offset < o.Offset
		})
		if !open {
			return ends, nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("a transaction is open: %v of %v: %w", committed, ends, context.Cause(ctx))
		}
	}
	return nil, err
}

func (c *Consumer) list(ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error)) (
	kadm.ListedOffsets, error) {
	offsets, err := list(ctx, c.topics...)
	if err == nil {
		err = offsets.Error()
	}
	return offsets, err
}

// start begins to read the partitions. A client that is given topics in place of partitions looks for topics that do
// not exist yet every five minutes.
func (c *Consumer) start(partitions kadm.ListedOffsets) {
	from := map[string]map[int32]kgo.Offset{}
	partitions.Each(func(o kadm.ListedOffset) {
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().AtStart()
	})
	// The control record behind a transaction shows that its records were read.
	c.client = c.server.Client(kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond))
}

func (c *Consumer) complete(ends kadm.ListedOffsets) bool {
	complete := true
	ends.Each(func(o kadm.ListedOffset) {
		complete = complete && c.position[partition{o.Topic, o.Partition}] >= o.Offset
	})
	return complete
}

// Messages returns the values of the records that were committed since the last call, without those of tombstones.
func (c *Consumer) Messages(ctx context.Context) (values [][]byte, err error) {
	records, err := c.Records(ctx)
	for _, r := range records {
		if r.Value != nil {
			values = append(values, r.Value)
		}
	}
	return values, err
}
