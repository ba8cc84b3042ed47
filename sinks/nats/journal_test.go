package nats

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/keepwatch/keepwatch/sinks/testonly/natstest"
)

// TestLateAppend has another writer publish before a journal appends several messages, as one does that was frozen. The
// journal stores none of them, although the sequences that some of them expect come true.
func TestLateAppend(t *testing.T) {
	t.Parallel() // it mostly waits
	t.Run("alone", func(t *testing.T) { testLateAppend(t, natstest.Start(t, "").JetStream(), 1) })
	t.Run("replicated", func(t *testing.T) { testLateAppend(t, natstest.StartCluster(t).JetStream(), 3) })
}

func testLateAppend(t *testing.T, js jetstream.JetStream, replicas int) {
	var stream jetstream.Stream
	for published := false; !published; { // a cluster that has just started has no leader
		var err error
		config := jetstream.StreamConfig{Name: "J", Subjects: []string{"j"}, Replicas: replicas, AllowAtomicPublish: true}
		if stream, err = js.CreateOrUpdateStream(t.Context(), config); err == nil {
			_, err = js.Publish(t.Context(), "j", nil)
		}
		if published = err == nil; !published {
			t.Log(err)
		}
	}
	open := func() *journal {
		j := newJournal(js.Conn(), js, stream, nil)
		if _, err := j.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		return j
	}
	messages := func(n int) (all []*nats.Msg) {
		for range n {
			all = append(all, nats.NewMsg("j"))
		}
		return all
	}
	for _, late := range []int{1, 3, batchMessages + 1} {
		first, next := open(), open()
		if err := first.append(t.Context(), messages(late)); err != nil {
			t.Fatal(err)
		}
		if err := next.append(t.Context(), messages(5)); err == nil || !strings.Contains(err.Error(), "wrong last sequence") {
			t.Errorf("behind %d messages of another writer: %v", late, err)
		}
		if info, err := stream.Info(t.Context()); err != nil || info.State.LastSeq != first.last {
			t.Errorf("the stream ends at %d, not at %d: it has messages without those before them, %v", info.State.LastSeq,
				first.last, err)
		}
	}
	last := open()
	for range 2 {
		if err := last.append(t.Context(), messages(3)); err != nil {
			t.Error(err)
		}
	}
}
