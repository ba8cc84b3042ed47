package sync

import (
	"testing"

	"github.com/keepwatch/keepwatch/internal/kafkatest"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestKafka runs the storm with Kafka, which is killed, too. A consumer with read_committed reads every change once.
func TestKafka(t *testing.T) {
	if !*kafkaFlag {
		t.Skip("the storm with Kafka is NOT run: it needs -sync.kafka, as make test-sinks has it")
	}
	broker := kafkatest.Start(t, nil)
	var topics []string
	for _, name := range names() {
		topics = append(topics, "storm."+name)
	}
	r := &runner{consumer: sinktest.NewConsumer(broker.Consume(topics...).Messages)}
	r.run(t, "kafka://"+broker.Addr()+"/storm.{resource}", func() {
		broker.Kill()
		broker.Restart()
	})
}

// judgeMessages compares everything that was read with the writes, as judge does.
func (r *runner) judgeMessages() {
	t := r.t
	problems, err := r.consumer.Invariants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	deleted := map[string]map[string]bool{} // resource → UID → whether the object was deleted
	states := r.consumer.States()
	for _, s := range states {
		if deleted[s.Resource] == nil {
			deleted[s.Resource] = map[string]bool{}
		}
		deleted[s.Resource][s.UID] = s.Deleted
	}
	gaps := r.consumer.Gaps()
	r.judgeObjects(func(resource string) map[string]bool { return deleted[resource] }, func(resource string) []stream.Gap { return gaps[resource] })
	t.Logf("%d states", len(states))
}
