package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/kafka"
	"github.com/keepwatch/keepwatch/sinks/testonly/kafkatest"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// What the tests of brokers share.
var open, write, batch, event = sinktest.Open, sinktest.Write, sinktest.Batch, sinktest.Event

// TestKafka runs the tests that share one broker.
func TestKafka(t *testing.T) {
	t.Parallel() // it mostly waits
	server := kafkatest.Start(t, nil)
	open(t, newSink(t, "kafka://"+server.Addr()+"/started.{resource}"))
	for name, test := range map[string]func(*testing.T, *kafkatest.Server){
		"records": testRecords, "debezium": testDebezium, "partitions": testPartitions, "writers": testWriters,
		"refused": testRefused,
		"lost":    testLost, "forgotten": testForgotten, "interrupted": testInterrupted, "large": testLarge, "credentials": testCredentials,
		"revoked": testRevoked, "mutants": testMutants, "clusters": testClusters,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, server)
		})
	}
}

// testClusters opens topics for several clusters.
func testClusters(t *testing.T, server *kafkatest.Server) {
	sinktest.TestClusters(t, newSink(t, "kafka://"+server.Addr()+"/clusters.{resource}"))
}

// testRecords checks keys, values and tombstones, hostile names included.
func testRecords(t *testing.T, server *kafkatest.Server) {
	s := newSink(t, "kafka://"+server.Addr()+"/records.{namespace}.{resource}")
	open(t, s)
	const name = "a.b_c*>é \r\nx"
	write(t, s, batch(1, 7, event(keepwatch.Added, name, 7, `{"a":1}`), stream.Synced{Revision: 7, Count: 1}))
	deleted := event(keepwatch.Deleted, name, 7, "") // as within a gap
	deleted.Revision, deleted.ID = 9, "uid/9/deleted"
	write(t, s, batch(0, 7, stream.Gap{From: 7, To: 9, Reason: keepwatch.GapExpired}, deleted))
	write(t, s, batch(0, 9))
	records, err := server.Consume("records._.pods").Records(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ key, value string }{
		{"uid-" + name,
			`{"type":"ADDED","revision":"7","id":"uid-a.b_c*\u003eé \r\nx/7","resource":"pods","object":{"a":1}}`},
		{"pods/", `{"type":"SYNCED","revision":"7","count":1,"resource":"pods"}`},
		{"pods/", `{"type":"GAP","from":"7","to":"9","reason":"expired","resource":"pods"}`},
		{"uid-" + name,
			`{"type":"DELETED","revision":"9","id":"uid/9/deleted","resource":"pods","object":{"metadata":{"namespace":"ns","name":"a.b_c*\u003eé \r\nx","uid":"uid-a.b_c*\u003eé \r\nx","resourceVersion":"7"}}}`},
		{"uid-" + name, ""},
	}
	if len(records) != len(want) {
		t.Fatalf("%d records, want %d", len(records), len(want))
	}
	for i, r := range records {
		if string(r.Key) != want[i].key || string(r.Value) != want[i].value || (r.Value == nil) != (want[i].value == "") {
			t.Errorf("record %d is %q %s\nwant %+v", i, r.Key, r.Value, want[i])
		}
	}
	status, err := s.Status(t.Context())
	if err != nil || len(status) != 4 || status[2].ID.Resource != "pods" || status[2].Progress.Cursor != 9 ||
		!status[2].Active {
		t.Errorf("status: %+v, %v", status, err)
	}
	s.Close()
	if stored := open(t, s); stored[0].Entries.Len() != 0 || stored[0].Progress.Cursor != 9 {
		t.Errorf("stored: %+v", stored[0])
	}
}

// testDebezium checks the envelopes of Debezium, whose keys and tombstones are those of the other shape.
func testDebezium(t *testing.T, server *kafkatest.Server) {
	s := newSink(t, "kafka://"+server.Addr()+"/debezium.{resource}?shape=debezium")
	open(t, s)
	write(t, s, batch(1, 7, event(keepwatch.Added, "x", 7, `{"a":1}`), stream.Synced{Revision: 7, Count: 1}))
	deleted := event(keepwatch.Deleted, "x", 7, "") // as within a gap
	deleted.Revision, deleted.ID = 9, "uid/9/deleted"
	write(t, s, batch(0, 7, stream.Gap{From: 7, To: 9, Reason: keepwatch.GapExpired}, deleted))
	records, err := server.Consume("debezium.pods").Records(t.Context())
	if err != nil || len(records) != 5 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, want := range []string{
		`"uid-x" {"before":null,"after":{"a":1},"source":{"version":"1","connector":"keepwatch",.*"snapshot":"true".*"revision":"7","epoch":0},"op":"r","ts_ms":\d+}`,
		`"pods/" {"source":{.*},"op":"m","ts_ms":\d+,"message":{"prefix":"keepwatch.synced","content":".*"}}`,
		`"pods/" {"source":{.*},"op":"m","ts_ms":\d+,"message":{"prefix":"keepwatch.gap","content":".*"}}`,
		`"uid-x" {"before":{"metadata":{"namespace":"ns","name":"x","uid":"uid-x","resourceVersion":"7"}},"after":null,"source":{.*},"op":"d","ts_ms":\d+}`,
		`"uid-x" `,
	} {
		if got := fmt.Sprintf("%q %s", records[i].Key, records[i].Value); !regexp.MustCompile("^" + want +
			"$").MatchString(got) {
			t.Errorf("record %d is %s\nwant %s", i, got, want)
		}
	}
}

// testPartitions checks that the events of an object are in one partition, the one that clients of Java choose, and
// that gaps and synced points are in all. Partitions that the topic receives later stay empty.
func testPartitions(t *testing.T, server *kafkatest.Server) {
	s := newSink(t, "kafka://"+server.Addr()+"/partitions?partitions=3")
	open(t, s)
	// The murmur2 of the clients of Java, modulo 3.
	expected := map[string]int32{}
	var events []stream.Message
	for i := range 20 {
		events = append(events, event(keepwatch.Added, fmt.Sprint("o-", i), keepwatch.Revision(i+1), `{}`))
	}
	write(t, s, batch(20, 20, append(events, stream.Synced{Revision: 20, Count: 20})...))
	write(t, s, batch(19, 21, event(keepwatch.Modified, "o-3", 21, `{}`), event(keepwatch.Deleted, "o-3", 22, `{}`)))
	s.Close()
	if _, err := kadm.NewClient(server.Client()).UpdatePartitions(t.Context(), 8, "partitions"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(await.Deadline); ; time.Sleep(20 * time.Millisecond) {
		if listed, err := kadm.NewClient(server.Client()).ListTopics(t.Context(), "partitions"); err != nil ||
			time.Now().After(end) {
			t.Fatal("the topic has no more partitions: ", err)
		} else if len(listed["partitions"].Partitions) == 8 {
			break
		}
	}
	open(t, s)
	var modified []stream.Message
	for i := range 20 {
		if i != 3 {
			modified = append(modified, event(keepwatch.Modified, fmt.Sprint("o-", i), keepwatch.Revision(i+23), `{}`))
		}
	}
	write(t, s, batch(19, 50, modified...))
	records, err := server.Consume("partitions").Records(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	partitions, events3, synced := map[int32]int{}, 0, map[int32]bool{}
	for _, r := range records {
		key := string(r.Key)
		if key == "pods/" {
			synced[r.Partition] = true
			continue
		}
		if at, ok := expected[key]; ok && at != r.Partition {
			t.Errorf("%s is in the partitions %d and %d", key, at, r.Partition)
		}
		expected[key] = r.Partition
		partitions[r.Partition]++
		if key == "uid-o-3" {
			events3++
		}
	}
	if len(synced) != 3 || len(partitions) != 3 || events3 != 4 {
		t.Errorf("synced points are in %v, events in %v, one object has %d records", synced, partitions, events3)
	}
	if at := expected["uid-o-0"]; at != murmur2Partition("uid-o-0", 3) {
		t.Errorf("uid-o-0 is in partition %d", at)
	}
}

// murmur2Partition is the partition of org.apache.kafka.clients.producer.internals.BuiltInPartitioner.
func murmur2Partition(key string, n int32) int32 {
	const m, r = 0x5bd1e995, 24
	h := uint32(0x9747b28c) ^ uint32(len(key))
	data := []byte(key)
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	for i := len(data) - 1; i >= 0; i-- {
		h ^= uint32(data[i]) << (8 * i)
	}
	if len(data) > 0 {
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return int32(h&0x7fffffff) % n
}

// testWriters checks that the newest writer fences the others, also one that is in the middle of a transaction.
func testWriters(t *testing.T, server *kafkatest.Server) {
	address := "kafka://" + server.Addr() + "/writers.{resource}"
	first, second := newSink(t, address), newSink(t, address)
	open(t, first)
	write(t, first, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	stored := open(t, second)
	want := []stream.Entry{{Key: keepwatch.Key{Namespace: "ns", Name: "a"}, UID: "uid-a", Revision: 5}}
	if e := slices.Collect(stored[0].Entries.All()); !slices.Equal(e, want) {
		t.Errorf("stored: %+v", e)
	}
	write(t, second, batch(2, 6, event(keepwatch.Added, "b", 6, `{}`)))
	err := first.Write(t.Context(), batch(2, 6, event(keepwatch.Added, "lost", 6, `{}`)))
	if !errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "another process writes with the transactional id keepwatch-writers") {
		t.Errorf("a writer that was replaced: %v", err)
	}
	first.Close()
	if _, err := first.Open(t.Context(), sinktest.Streams()); err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "another keepwatch sync has taken over") {
		t.Errorf("it opens again: %v", err)
	}
	write(t, second, batch(2, 7))
	other := sinktest.Streams()
	other[0].ID.LabelSelector = "a=b"
	if _, err := newSink(t, address).Open(t.Context(), other); err == nil ||
		!strings.Contains(err.Error(), "it has the objects of pods in all namespaces") {
		t.Errorf("another selection: %v", err)
	}
	messages, err := server.Consume("writers.pods").Messages(t.Context())
	if err != nil || len(messages) != 2 {
		t.Errorf("%q, %v", messages, err)
	}
}

// testRefused checks what New and Open refuse, and that no message has a password.
func testRefused(t *testing.T, server *kafkatest.Server) {
	admin := kadm.NewClient(server.Client())
	for name, partitions := range map[string]int32{"state-deleted": 1, "state-many": 2} {
		policy := map[string]*string{}
		if partitions > 1 {
			policy["cleanup.policy"] = kadm.StringPtr("compact")
		}
		if _, err := admin.CreateTopic(t.Context(), partitions, 1, policy, name); err != nil {
			t.Fatal(err)
		}
	}
	for address, want := range map[string]string{
		"kafka://u:pa55word@" + server.Addr():                           "the address needs the topics",
		"kafka://u:pa55word@" + server.Addr() + "/":                     "the address needs the topics",
		"kafka://u:pa55word@" + server.Addr() + "/{uid}":                "{uid} is not known",
		"kafka://u:pa55word@" + server.Addr() + "/a b":                  "letters, digits",
		"kafka://u:pa55word@" + server.Addr() + "/a/b":                  "letters, digits",
		"kafka://u:pa55word@" + server.Addr() + "/a?state=b*":           "letters, digits",
		"kafka://u:pa55word@" + server.Addr() + "/a?topik=b":            "is not known",
		"kafka://u:pa55word@" + server.Addr() + "/a?replicas=0":         "replicas must be 1 to 100",
		"kafka://u:pa55word@" + server.Addr() + "/a?partitions=x":       "partitions must be 1 to 10000",
		"kafka://u:pa55word@" + server.Addr() + "/a?tls=yes":            "tls must be true or false",
		"kafka://u:pa55word@" + server.Addr() + "/a?tls=false&ca=x":     "give one of them",
		"kafka://u:pa55word@" + server.Addr() + "/a?ca=/nowhere":        "no such file",
		"kafka://u:12#pa55word@" + server.Addr() + "/a":                 "must be percent-encoded",
		"kafka://u:?pa55word@" + server.Addr() + "/a":                   "must be percent-encoded",
		"kafka://u:/pa55word@" + server.Addr() + "/a":                   "must be percent-encoded",
		"kafka://u:pa%55word@[x/a":                                      "no valid host",
		"kafka://" + server.Addr() + "/refused?state=refused":           "is the state topic, too",
		"kafka://" + server.Addr() + "/refused?replicas=3":              "topic refused",
		"kafka://" + server.Addr() + "/refused2?state=state-deleted":    "cleanup.policy",
		"kafka://" + server.Addr() + "/refused2?state=state-many":       "has 2 partitions",
		"kafka://" + server.Addr() + "/refused3.{namespace}.{resource}": "",
	} {
		s, err := kafka.New(address, kafka.Options{})
		if err == nil {
			_, err = sinktest.TryOpen(t, s, sinktest.Streams())
			s.Close()
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", address, err)
		case want != "" && (err == nil || errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "pa55word")):
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	if _, err := newSink(t, "kafka://127.0.0.1:1/a").Open(t.Context(), nil); !errors.As(err, new(*sink.Unavailable)) {
		t.Errorf("a broker that does not run: %v", err)
	}
}

// testLost checks that a topic which was deleted is noticed, and that other topics are.
func testLost(t *testing.T, server *kafkatest.Server) {
	s := newSink(t, "kafka://"+server.Addr()+"/lost.{resource}")
	open(t, s)
	write(t, s, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	s.Close()
	for address, want := range map[string]string{
		"/lost-{resource}?state=keepwatch-lost": "its records are in topic lost.pods, not in lost-pods",
		"/lost.{resource}":                      "",
	} {
		_, err := sinktest.TryOpen(t, newSink(t, "kafka://"+server.Addr()+address), sinktest.Streams())
		if want == "" && err != nil || want != "" && (err == nil || errors.As(err, new(*sink.Unavailable)) ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	deleteTopic(t, server, "lost.pods")
	_, err := sinktest.TryOpen(t, newSink(t, "kafka://"+server.Addr()+"/lost.{resource}"), sinktest.Streams())
	if err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "lost.pods was deleted and made anew") {
		t.Errorf("after the loss of a topic: %v", err)
	}
}

// testForgotten deletes the state topic below a sink: what it has committed does not begin anew without a word.
func testForgotten(t *testing.T, server *kafkatest.Server) {
	s := newSink(t, "kafka://"+server.Addr()+"/forgotten.{resource}?state=keepwatch-forgotten")
	open(t, s)
	write(t, s, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	s.Close()
	if stored := open(t, s); stored[0].Progress.Cursor != 5 {
		t.Errorf("stored: %+v", stored[0])
	}
	s.Close()
	deleteTopic(t, server, "keepwatch-forgotten")
	_, err := sinktest.TryOpen(t, s, sinktest.Streams())
	if err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "the state topic keepwatch-forgotten has lost the cursor of ") {
		t.Errorf("after the loss of the state topic: %v", err)
	}
}

// deleteTopic deletes a topic, and waits until the broker has forgotten it.
func deleteTopic(t *testing.T, server *kafkatest.Server, name string) {
	t.Helper()
	admin := kadm.NewClient(server.Client())
	if _, err := admin.DeleteTopic(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(await.Deadline); ; time.Sleep(20 * time.Millisecond) {
		if listed, err := admin.ListTopics(t.Context()); err != nil || time.Now().After(end) {
			t.Fatal("the topic is not deleted: ", err)
		} else if !listed.Has(name) {
			return
		}
	}
}

// testLarge writes an object that is larger than its topic accepts, and then raises the limit.
func testLarge(t *testing.T, server *kafkatest.Server) {
	const limit = "max.message.bytes"
	admin := kadm.NewClient(server.Client())
	// The broker applies a limit with which a topic is made at once, and a changed one a moment later.
	if _, err := admin.CreateTopic(t.Context(), 1, 1, map[string]*string{limit: kadm.StringPtr("100000")},
		"large.pods"); err != nil {
		t.Fatal(err)
	}
	s := newSink(t, "kafka://"+server.Addr()+"/large.{resource}")
	large := batch(1, 6, event(keepwatch.Added, "large", 6, `"`+strings.Repeat("x", 2<<20)+`"`))
	open(t, s)
	err := s.Write(t.Context(), large)
	if !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "raise its max.message.bytes") {
		t.Errorf("a large object: %v", err)
	}
	s.Close()
	if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: limit,
		Value: kadm.StringPtr("4000000")}}, "large.pods"); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the broker applies the limit", func() error {
		_, err := s.Open(t.Context(), sinktest.Streams())
		if err == nil {
			err = s.Write(t.Context(), large)
		}
		if err != nil {
			s.Close()
		}
		return err
	})
}

// TestSlow writes over a connection that needs longer for a transaction than the sink waits for an answer.
func TestSlow(t *testing.T) {
	t.Parallel() // it mostly waits
	var cutter *sinktest.Cutter
	server := kafkatest.Start(t, func(addr string) string {
		cutter = sinktest.NewCutter(t, addr)
		return cutter.Addr()
	})
	s := newSink(t, "kafka://"+cutter.Addr()+"/slow.{resource}")
	open(t, s)
	sinktest.WriteSlowly(t, s, cutter, 32<<10, sinktest.Large(100, 12<<10), 30*time.Second)
	if messages, err := server.Consume("slow.pods").Messages(t.Context()); err != nil || len(messages) != 100 {
		t.Errorf("%d records: %v", len(messages), err)
	}
}

// testCredentials changes the password of the user of an open sink, over TLS.
func testCredentials(t *testing.T, server *kafkatest.Server) {
	addr, ca := server.Secure()
	setPassword(t, server, "sync", "first")
	file := filepath.Join(t.TempDir(), "password")
	stored := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stored("first\n")
	s := newSink(t, "kafka://sync@"+addr+"/credentials.{resource}?password-file="+file+"&ca="+ca)
	open(t, s)
	write(t, s, batch(0, 1))
	s.Close()
	setPassword(t, server, "sync", "second")
	if _, err := s.Open(t.Context(), sinktest.Streams()); !errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "refuses the user or the password") {
		t.Errorf("with the old password: %v", err)
	}
	for address, want := range map[string]string{
		"kafka://sync:wr0ng@" + addr + "/credentials.{resource}?ca=" + ca: "refuses the user or the password",
		"kafka://sync:wr0ng@" + addr + "/credentials.{resource}?tls=true": "certificate",
	} {
		_, err := newSink(t, address).Open(t.Context(), sinktest.Streams())
		if err == nil || errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("at a start: %v, want %q", err, want)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), sinktest.Streams()); !errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "password-file: ") {
		t.Errorf("without the file: %v", err)
	}
	stored("second")
	open(t, s)
}

// setPassword sets the password of a user, and waits until the broker applies it.
func setPassword(t *testing.T, server *kafkatest.Server, user, password string) {
	t.Helper()
	if _, err := kadm.NewClient(server.Client()).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: user,
		Mechanism: kadm.ScramSha512, Iterations: 4096, Password: password}}); err != nil {
		t.Fatal(err)
	}
	addr, ca := server.Secure()
	s := newSink(t, fmt.Sprintf("kafka://%s:%s@%s/password-of-%[1]s?ca=%[4]s", user, password, addr, ca))
	await.NoError(t, "the broker applies the password", func() error {
		_, err := s.Open(t.Context(), sinktest.Streams())
		s.Close()
		return err
	})
}

// testRevoked revokes the permission to write to a topic while the sink writes, and grants it again: nothing is lost.
func testRevoked(t *testing.T, server *kafkatest.Server) {
	addr, ca := server.Secure()
	admin := kadm.NewClient(server.Client())
	setPassword(t, server, "revoked", "w")
	s := newSink(t, "kafka://revoked:w@"+addr+"/revoked.{resource}?ca="+ca)
	open(t, s)
	write(t, s, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	denied := kadm.NewACLs().Topics("revoked.pods").Deny("User:revoked").DenyHosts("*").Operations(
		kadm.OpWrite).ResourcePatternType(kadm.ACLPatternLiteral)
	if _, err := admin.CreateACLs(t.Context(), denied); err != nil {
		t.Fatal(err)
	}
	written := 1
	next := func() sink.Batch {
		at := keepwatch.Revision(5 + written)
		return batch(uint64(written+1), at, event(keepwatch.Added, fmt.Sprint("b", written), at, `{}`))
	}
	var err error
	for end := time.Now().Add(await.Deadline); time.Now().Before(end); written++ { // the broker applies it a moment later
		if err = s.Write(t.Context(), next()); err != nil {
			break
		}
	}
	if !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "a permission is missing") {
		t.Fatalf("without permission: %v", err)
	}
	refused := written // so many objects were stored before the write that was refused
	s.Close()
	if _, err := admin.DeleteACLs(t.Context(), denied); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the broker applies the permission", func() error {
		stored, err := s.Open(t.Context(), sinktest.Streams())
		if err == nil {
			n := stored[0].Entries.Len()
			if n != written && n != written+1 {
				t.Errorf("%d objects are stored, want %d, or one more: of a write that failed", n, written)
			}
			if written = n; written == refused {
				err = s.Write(t.Context(), next())
			}
		}
		if err != nil {
			s.Close()
		}
		return err
	})
	records, err := server.Consume("revoked.pods").Records(t.Context())
	if err != nil || len(records) != refused+1 {
		t.Errorf("%d records, %v, want %d", len(records), err, refused+1)
	}
}

// testInterrupted kills a process in the middle of a transaction: consumers with read_committed never see it, and the
// next writer ends it.
func testInterrupted(t *testing.T, server *kafkatest.Server) {
	address := "kafka://" + server.Addr() + "/interrupted.{resource}"
	s := newSink(t, address)
	open(t, s)
	write(t, s, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	s.Close()
	dying := server.Client(kgo.TransactionalID("keepwatch-interrupted"), kgo.TransactionTimeout(5*time.Minute))
	if err := dying.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"interrupted.pods", "keepwatch-interrupted"} {
		if err := dying.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("half"),
			Value: []byte("half")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	stored := open(t, s)
	if stored[0].Entries.Len() != 1 || stored[0].Progress.Cursor != 5 {
		t.Errorf("stored: %+v", stored[0])
	}
	if err := dying.EndTransaction(context.WithoutCancel(t.Context()), kgo.TryCommit); err == nil {
		t.Error("a transaction was committed that another process has ended")
	}
	write(t, s, batch(2, 6, event(keepwatch.Added, "b", 6, `{}`)))
	messages, err := server.Consume("interrupted.pods").Messages(t.Context())
	if err != nil || len(messages) != 2 {
		t.Errorf("%q, %v", messages, err)
	}
}

// BenchmarkPods writes pods of a large cluster; see [sinktest.Benchmark].
func BenchmarkPods(b *testing.B) {
	server := kafkatest.Start(b, nil)
	n := 0
	sinktest.Benchmark(b, 5000, func() sink.Sink {
		n++
		return newSink(b, fmt.Sprintf("kafka://%s/bench%d.{resource}", server.Addr(), n))
	})
}
