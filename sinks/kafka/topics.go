package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/keepwatch/keepwatch/internal/pause"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// topic is a topic as the broker has it.
type topic struct {
	name       string
	id         string // another one after the topic was deleted and made again
	partitions int
	maxBytes   int32 // of a batch of records
}

const (
	// maxMessageBytes is the limit of topics that are made: an object is at most some MiB.
	maxMessageBytes = 8 << 20
	// stateSegmentBytes bounds what the state topic has besides its newest records: Kafka compacts closed segments only.
	stateSegmentBytes = 16 << 20
	// topicsWait is the interval in which the broker is asked for topics that were just made.
	topicsWait = 100 * time.Millisecond
)

// topicsOf returns the names of the streams' topics, each once.
func (t target) topicsOf(streams []sink.Stream) ([]string, error) {
	names := map[string]bool{}
	for _, wanted := range streams {
		name := t.topicOf(wanted.ID)
		switch {
		case !validName.MatchString(name):
			return nil, refusef("%s: %q cannot be the name of a topic", wanted.ID.Resource, name)
		case name == t.state:
			return nil, refusef("%s: the topic %s is the state topic, too: give another one by the parameter state",
				wanted.ID.Resource, name)
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// ensure returns the state topic and the topics of streams, which are made if they do not exist.
func (t target) ensure(ctx context.Context, admin *kadm.Client, streams []sink.Stream) (map[string]topic, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	names, err := t.topicsOf(streams)
	if err != nil {
		return nil, err
	}
	names = append(names, t.state)
	found, missing, err := describe(ctx, admin, names)
	for ; err == nil && len(missing) > 0; found, missing, err = describe(ctx, admin, names) {
		for _, name := range missing {
			if err := t.create(ctx, admin, name); err != nil {
				return nil, fmt.Errorf("topic %s: %w", name, err)
			}
		}
		if pause.For(ctx, topicsWait) != nil {
			return nil, fmt.Errorf("topics %v do not appear: %w", missing, context.Cause(ctx))
		}
	}
	if err != nil {
		return nil, err
	}
	return found, t.configure(ctx, admin, found)
}

// describe returns the topics that exist, and the names of the others.
func describe(ctx context.Context, admin *kadm.Client,
	names []string) (found map[string]topic, missing []string, err error) {
	m, err := admin.Metadata(ctx, names...)
	if err != nil {
		return nil, nil, err
	}
	found = map[string]topic{}
	for _, name := range names {
		switch d, ok := m.Topics[name]; {
		case !ok || errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			missing = append(missing, name)
		case d.Err != nil:
			return nil, nil, fmt.Errorf("topic %s: %w", name, d.Err)
		default:
			found[name] = topic{name: name, id: d.ID.String(), partitions: len(d.Partitions)}
		}
	}
	return found, missing, nil
}

func (t target) create(ctx context.Context, admin *kadm.Client, name string) error {
	partitions, config := t.partitions,
		map[string]*string{"max.message.bytes": kadm.StringPtr(strconv.Itoa(maxMessageBytes))}
	if name == t.state {
		partitions = 1
		config["cleanup.policy"] = kadm.StringPtr("compact")
		config["segment.bytes"] = kadm.StringPtr(strconv.Itoa(stateSegmentBytes))
	}
	_, err := admin.CreateTopic(ctx, partitions, t.replicas, config, name)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	return err
}

// configure sets the limits of topics, and returns an error for a state topic that loses records.
func (t target) configure(ctx context.Context, admin *kadm.Client, topics map[string]topic) error {
	all, err := admin.DescribeTopicConfigs(ctx, slices.Collect(maps.Keys(topics))...)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Err != nil {
			return fmt.Errorf("configuration of topic %s: %w", c.Name, c.Err)
		}
		values := map[string]string{}
		for _, value := range c.Configs {
			values[value.Key] = value.MaybeValue()
		}
		limit, err := strconv.ParseInt(values["max.message.bytes"], 10, 32)
		if err != nil {
			return fmt.Errorf("configuration of topic %s: max.message.bytes is %q", c.Name, values["max.message.bytes"])
		}
		described := topics[c.Name]
		described.maxBytes = int32(limit)
		topics[c.Name] = described
		if c.Name != t.state {
			continue
		}
		if policy := values["cleanup.policy"]; policy != "compact" {
			return refusef(
				"the state topic %s has the cleanup policy %s, which would remove cursors: set cleanup.policy to compact", t.state,
				policy)
		}
		if described.partitions != 1 {
			return refusef("the state topic %s has %d partitions: it needs 1, delete it, and keepwatch sync makes it", t.state,
				described.partitions)
		}
	}
	return nil
}
