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
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/keepwatch/keepwatch/internal/pause"
)

// The coordinator of a transaction answers when its decision is durable. Later it writes the markers that end the
// transaction in each partition. Some versions of Kafka (4.3.1 for one) write none into a partition that has no leader
// at that moment, as after a kill of its only broker, and then consider the transaction complete (KAFKA-20734). In that
// partition it hangs: consumers wait for its end, and the producer's next transaction decides about both.
//
// So a transaction begins only when the previous one has ended in all of its partitions (awaitEnd): at most one hangs,
// the newest. Open ends it as the coordinator had decided (findDecision, endHanging). A claim of the transactional id
// replaces that decision, so that the claim itself has it: in the timeout of its transactions.

// commitTimeout is the transaction timeout of a process that is to commit a transaction which hangs. Any other timeout
// is of a process that is not.
const commitTimeout = transactionTimeout - time.Millisecond

// errUndescribed is returned for brokers that lack the requests which find transactions that hang. These brokers lack
// the fault, too.
var errUndescribed = errors.New("the brokers do not describe transactions")

// checkDescribes returns errUndescribed if a broker that answers lacks the requests.
func checkDescribes(ctx context.Context, admin *kadm.Client) error {
	all, err := admin.ApiVersions(ctx)
	if err != nil {
		return err
	}
	for _, broker := range all {
		if broker.Err != nil {
			continue
		}
		for _, request := range []kmsg.Request{kmsg.NewPtrDescribeProducersRequest(),
			kmsg.NewPtrDescribeTransactionsRequest()} {
			if _, ok := broker.KeyMaxVersion(request.Key()); !ok {
				return errUndescribed
			}
		}
	}
	return nil
}

// findDecision reports whether a transaction that is open in topics was to be committed. It completes one that another
// process has begun in order to end such a transaction: the claim would abort both. It looks before the claim, so it
// cannot see what a process decides that still writes until then, and what a broker then leaves open.
func (s *Sink) findDecision(ctx context.Context, admin *kadm.Client, topics scope) (commit bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	open, err := openPartitions(ctx, admin, topics)
	if err != nil || len(open) == 0 {
		return false, err
	}
	newest, err := s.describe(ctx, admin)
	if errors.Is(err, errUndescribed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ending := newest.TimeoutMillis == int32(commitTimeout.Milliseconds())
	switch newest.State {
	case "PrepareCommit", "CompleteCommit":
		return true, nil
	case "Empty":
		return ending, nil
	case "Ongoing":
		if ending {
			return true, s.endTxn(ctx, newest.ProducerID, newest.ProducerEpoch, kgo.TryCommit)
		}
	}
	return false, nil // the claim aborts one that is not decided
}

// claimTimeout returns the transaction timeout of a claim, before a transaction that hangs is committed or not.
func claimTimeout(commit bool) time.Duration {
	if commit {
		return commitTimeout
	}
	return transactionTimeout
}

// describe returns the coordinator's state of the transactional id: the zero state if nobody has claimed it.
func (s *Sink) describe(ctx context.Context, admin *kadm.Client) (kadm.DescribedTransaction, error) {
	if err := checkDescribes(ctx, admin); err != nil {
		return kadm.DescribedTransaction{}, err
	}
	all, err := admin.DescribeTransactions(ctx, s.target.state)
	if err != nil {
		return kadm.DescribedTransaction{}, err
	}
	found := all[s.target.state]
	if errors.Is(found.Err, kerr.TransactionalIDNotFound) {
		found.Err = nil
	}
	return found, found.Err
}

// scope is where transactions are looked for: the topics of the streams and the state topic, and those of streams that
// were stored before, which may no longer exist.
type scope struct {
	current map[string]topic
	former  []string
}

// openPartitions returns the partitions of topics that have an open transaction.
func openPartitions(ctx context.Context, admin *kadm.Client, topics scope) (open kadm.TopicsSet, err error) {
	names := slices.Compact(slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(topics.current)),
		topics.former))))
	// The ends first: otherwise what is appended in between would seem to be open.
	ends, err := admin.ListEndOffsets(ctx, names...)
	if err != nil {
		return nil, err
	}
	stable, err := admin.ListCommittedOffsets(ctx, names...)
	if err != nil {
		return nil, err
	}
	ends.Each(func(end kadm.ListedOffset) {
		found, ok := stable.Lookup(end.Topic, end.Partition)
		_, current := topics.current[end.Topic]
		switch first := errors.Join(end.Err, found.Err); {
		case !current && (errors.Is(first, kerr.UnknownTopicOrPartition) || errors.Is(first, kerr.TopicAuthorizationFailed)):
		case first != nil:
			err = fmt.Errorf("topic %s: %w", end.Topic, first)
		case !ok || found.Offset < end.Offset:
			open.Add(end.Topic, end.Partition)
		}
	})
	return open, err
}

// offsets are offsets of partitions of topics.
type offsets map[string]map[int32]int64

func (o offsets) set(topic string, partition int32, offset int64) {
	if o[topic] == nil {
		o[topic] = map[int32]int64{}
	}
	o[topic][partition] = offset
}

func (o offsets) remove(topic string, partition int32) {
	if delete(o[topic], partition); len(o[topic]) == 0 {
		delete(o, topic)
	}
}

func (o offsets) partitions() (set kadm.TopicsSet) {
	for topic, partitions := range o {
		set.Add(topic, slices.Collect(maps.Keys(partitions))...)
	}
	return set
}

// openTransactions returns the producers of open transactions in partitions.
func openTransactions(ctx context.Context, admin *kadm.Client,
	partitions kadm.TopicsSet) (open []kadm.DescribedProducer, err error) {
	if err := checkDescribes(ctx, admin); err != nil {
		return nil, err
	}
	described, err := admin.DescribeProducers(ctx, partitions)
	if err != nil {
		return nil, fmt.Errorf("open transactions in the topics %v, which need the permission Read: %w", partitions.Topics(),
			err)
	}
	for _, p := range described.SortedPartitions() {
		if p.Err != nil {
			return nil, fmt.Errorf("open transactions in the topic %s, which needs the permission Read: %w", p.Topic, p.Err)
		}
	}
	described.EachProducer(func(p kadm.DescribedProducer) {
		if p.CurrentTxnStartOffset >= 0 {
			open = append(open, p)
		}
	})
	return open, nil
}

// endHanging ends the transaction that hangs in topics, and reports whether one did. This process has claimed the
// transactional id, which ends all others.
func (s *Sink) endHanging(ctx context.Context, admin *kadm.Client, topics scope,
	end kgo.TransactionEndTry) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	open, err := openPartitions(ctx, admin, topics)
	if err != nil || len(open) == 0 {
		return false, err
	}
	id, epoch, err := s.client.ProducerID(ctx)
	if err != nil {
		return false, err
	}
	all, err := openTransactions(ctx, admin, open)
	if errors.Is(err, errUndescribed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	own := offsets{}
	for _, p := range all {
		switch {
		case p.ProducerID == id:
			own.set(p.Topic, p.Partition, p.CurrentTxnStartOffset)
		case p.Topic == s.target.state:
			// Kafka gives another producer id after 32,767 transactions, and after a transactional id was not used for a week.
			return false,
				refusef("a transaction of an earlier producer, %d, hangs in the topic %s: find and abort it with kafka-transactions.sh (find-hanging, abort)", p.ProducerID, p.Topic)
		}
	}
	if len(own) == 0 {
		return false, nil
	}
	if err := s.addPartitions(ctx, id, epoch, own); err != nil {
		return false, err
	}
	if err := s.endTxn(ctx, id, epoch, end); err != nil {
		return false, err
	}
	return true, s.awaitEnd(ctx, id, own)
}

// addPartitions begins a transaction in partitions, without a record.
func (s *Sink) addPartitions(ctx context.Context, id int64, epoch int16, partitions offsets) error {
	request := kmsg.NewPtrAddPartitionsToTxnRequest()
	request.TransactionalID, request.ProducerID, request.ProducerEpoch = s.target.state, id, epoch
	for topic, numbers := range partitions {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = topic, slices.Collect(maps.Keys(numbers))
		request.Topics = append(request.Topics, t)
	}
	return s.askCoordinator(ctx, func(client *kgo.Client) error {
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		for _, t := range response.Topics {
			for _, p := range t.Partitions {
				// The others are not attempted if there is an error in one.
				if failed := kerr.ErrorForCode(p.ErrorCode); failed != nil &&
					(err == nil || !errors.Is(failed, kerr.OperationNotAttempted)) {
					err = fmt.Errorf("topic %s: %w", t.Topic, failed)
				}
			}
		}
		return err
	})
}

// endTxn ends a transaction.
func (s *Sink) endTxn(ctx context.Context, id int64, epoch int16, end kgo.TransactionEndTry) error {
	request := kmsg.NewPtrEndTxnRequest()
	request.TransactionalID, request.ProducerID, request.ProducerEpoch, request.Commit = s.target.state, id, epoch,
		bool(end)
	return s.askCoordinator(ctx, func(client *kgo.Client) error {
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(response.ErrorCode)
	})
}

// askCoordinator sends a request again as long as the coordinator completes another transaction.
func (s *Sink) askCoordinator(ctx context.Context, send func(*kgo.Client) error) error {
	// Newer versions of these requests are those of brokers, and of clients whose epoch each transaction raises.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.NewPtrAddPartitionsToTxnRequest().Key(), 3)
	versions.SetMaxKeyVersion(kmsg.NewPtrEndTxnRequest().Key(), 4)
	client, err := s.target.connect(kgo.MaxVersions(versions))
	if err != nil {
		return err
	}
	defer client.Close()
	for err = send(client); errors.Is(err, kerr.ConcurrentTransactions); err = send(client) {
		if pause.For(ctx, markersPollMax) != nil {
			return err
		}
	}
	return err
}
