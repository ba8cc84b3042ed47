package nats_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/nats"
	"github.com/keepwatch/keepwatch/sinks/testonly/natstest"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

var (
	seedFlag  = flag.Uint64("sinks.seed", 1, "draw changes and faults as a run did that printed this seed; 0 draws anew")
	stepsFlag = flag.Int("sinks.steps", 60, "how many things happen to the sources of a run")
)

func TestMain(m *testing.M) {
	natstest.Main()
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("16") // tests wait for servers, and not for processors
	}
	os.Exit(m.Run())
}

// steps returns how many things happen to the sources of a run: with -short fewer, because NATS is killed, and clients
// come back after seconds.
func steps() int {
	if f := flag.Lookup("sinks.steps"); testing.Short() && f.Value.String() == f.DefValue {
		return 20
	}
	return *stepsFlag
}

func newSink(t testing.TB, address string) *nats.Sink {
	t.Helper()
	s, err := nats.New(address, nats.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// What the tests of brokers share.
var open, write, batch, event = sinktest.Open, sinktest.Write, sinktest.Batch, sinktest.Event

// restart kills a server and starts it again.
func restart(server *natstest.Server) func() {
	return func() {
		server.Kill()
		server.Restart()
	}
}

// TestWorld reads the messages of a stream as a consumer does, while the sources change, expire and are restored,
// commits fail, NATS is killed, and connections break.
func TestWorld(t *testing.T) {
	t.Parallel() // it mostly waits
	server := natstest.Start(t, "")
	cutter := sinktest.NewCutter(t, server.Addr())
	s := newSink(t, "nats://"+cutter.Addr()+"/CLUSTER?subject=k8s.{resource}.{namespace}.{name}.{type}")
	open(t, s)
	s.Close()
	sinktest.RunBroker(t, sinktest.Config{
		Sink: s, Tables: sinktest.NewConsumer(natstest.Messages(server.JetStream(), "CLUSTER")), Seed: *seedFlag,
		Steps: steps(),
	}, cutter, restart(server))
}

// TestMutants checks that streams and buckets with a planted fault are noticed.
func TestMutants(t *testing.T) {
	t.Parallel() // it mostly waits
	server := natstest.Start(t, "")
	create := func(t *testing.T, address string) *nats.Sink {
		s := newSink(t, "nats://"+server.Addr()+address)
		open(t, s)
		s.Close()
		return s
	}
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		sinktest.TestMutants(t, nil, func(t *testing.T, name string) sinktest.Config {
			return sinktest.Config{Sink: create(t, "/"+name), Tables: sinktest.NewConsumer(natstest.Messages(server.JetStream(),
				name))}
		})
	})
	t.Run("bucket", func(t *testing.T) {
		t.Parallel()
		sinktest.TestMutants(t, nil, func(t *testing.T, name string) sinktest.Config {
			return sinktest.Config{Sink: create(t, "/?kv="+name), Tables: bucket{server.JetStream(), name}, CurrentOnly: true}
		})
	})
}

// bucket reads the current objects as a client of the bucket does.
type bucket struct {
	jetstream.JetStream
	name string
}

func (b bucket) AsOf(context.Context, int, sink.Cut) ([]sinktest.Row, error) { return nil, nil }
func (b bucket) Invariants(context.Context) ([]string, error)                { return nil, nil }

func (b bucket) Current(ctx context.Context, line int) (rows []sinktest.Row, err error) {
	objects, err := natstest.Objects(ctx, b, b.name)
	if err != nil {
		return nil, err
	}
	for key, text := range objects {
		resource, rest, _ := strings.Cut(key, ".")
		resource = strings.ReplaceAll(resource, "_", ".")
		for _, s := range sinktest.Streams() {
			if s.ID.Resource != resource || s.Line != line {
				continue
			}
			row, err := sinktest.RowOf(resource, text)
			if err != nil || row.Namespace+"."+row.Name != rest {
				return nil, fmt.Errorf("the key %s has %+v, %v", key, row, err)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// TestBucket compares a bucket with sources that change, expire and are restored.
func TestBucket(t *testing.T) {
	t.Parallel() // it mostly waits
	server := natstest.Start(t, "")
	cutter := sinktest.NewCutter(t, server.Addr())
	s := newSink(t, "nats://"+cutter.Addr()+"/?kv=objects")
	open(t, s)
	s.Close()
	sinktest.RunBroker(t, sinktest.Config{
		Sink: s, Tables: bucket{server.JetStream(), "objects"}, CurrentOnly: true, Seed: *seedFlag, Steps: steps(),
	}, cutter, restart(server))
}

// TestNATS runs the tests that share one server.
func TestNATS(t *testing.T) {
	t.Parallel() // it mostly waits
	server := natstest.Start(t, "max_payload: 100000")
	t.Run("debezium", func(t *testing.T) { testDebezium(t, server) })
	t.Run("names", func(t *testing.T) { testNames(t, server) })
	t.Run("messages", func(t *testing.T) { testMessages(t, server) })
	t.Run("writers", func(t *testing.T) { testWriters(t, server) })
	t.Run("replaced", func(t *testing.T) { testReplaced(t, server) })
	t.Run("foreign", func(t *testing.T) { testForeign(t, server) })
	t.Run("clusters", func(t *testing.T) {
		sinktest.TestClusters(t, newSink(t, "nats://"+server.Addr()+"/CLUSTERS"))
	})
	t.Run("returned", func(t *testing.T) { testReturned(t, server) })
	t.Run("older", func(t *testing.T) { testOlder(t, server) })
	t.Run("refused", func(t *testing.T) { testRefused(t, server) })
	t.Run("lost", func(t *testing.T) { testLost(t, server) })
	t.Run("purged", func(t *testing.T) { testPurged(t, server) })
	t.Run("expired", func(t *testing.T) { testExpired(t, server) })
	t.Run("full", func(t *testing.T) { testFull(t, server) })
	t.Run("cut", func(t *testing.T) { testCut(t, server) })
	t.Run("parts", func(t *testing.T) { testParts(t, server) })
	t.Run("credentials", func(t *testing.T) { testCredentials(t, server) })
	t.Run("revoked", func(t *testing.T) { testRevoked(t, server) }) // last
}

// testDebezium checks the envelopes of Debezium.
func testDebezium(t *testing.T, server *natstest.Server) {
	s := newSink(t, "nats://"+server.Addr()+"/DEBEZIUM?shape=debezium")
	open(t, s)
	write(t, s, batch(1, 7, event(keepwatch.Added, "x", 7, `{"a":1}`)))
	deleted := event(keepwatch.Deleted, "x", 7, "") // as within a gap
	deleted.Revision, deleted.ID = 9, "uid/9/deleted"
	write(t, s, batch(0, 7, stream.Gap{From: 7, To: 9, Reason: keepwatch.GapExpired}, deleted))
	found, err := server.JetStream().Stream(t.Context(), "DEBEZIUM")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`{"before":null,"after":{"a":1},"source":{.*"snapshot":"true".*"revision":"7","epoch":0},"op":"r","ts_ms":\d+}`,
		`{"source":{.*},"op":"m","ts_ms":\d+,"message":{"prefix":"keepwatch.gap","content":".*"}}`,
		`{"before":{"metadata":{"namespace":"ns","name":"x","uid":"uid-x","resourceVersion":"7"}},"after":null,"source":{.*},"op":"d","ts_ms":\d+}`,
	} {
		m, err := found.GetMsg(t.Context(), uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile("^" + want + "$").Match(m.Data) {
			t.Errorf("message %d is %s\nwant %s", i+1, m.Data, want)
		}
	}
}

// testMessages checks subjects, headers and bodies, hostile names included.
func testMessages(t *testing.T, server *natstest.Server) {
	s := newSink(t, "nats://"+server.Addr()+"/MESSAGES")
	open(t, s)
	const hostile = "a.b_c*>é \r\nx"
	write(t, s, batch(1, 7, event(keepwatch.Added, hostile, 7, `{"a":1}`), stream.Synced{Revision: 7, Count: 1}))
	deleted := event(keepwatch.Deleted, hostile, 7, "") // as within a gap
	deleted.Revision, deleted.ID = 9, "uid/9/deleted"
	write(t, s, batch(0, 7, stream.Gap{From: 7, To: 9, Reason: keepwatch.GapExpired}, deleted))
	write(t, s, batch(0, 9))
	js := server.JetStream()
	found, err := js.Stream(t.Context(), "MESSAGES")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ subject, body string }{
		{"MESSAGES.pods.ns.a_b=5Fc=2A=3E=C3=A9=20=0D=0Ax",
			`{"type":"ADDED","revision":"7","id":"uid-a.b_c*\u003eé \r\nx/7","resource":"pods","object":{"a":1}}`},
		{"MESSAGES.pods._._", `{"type":"SYNCED","revision":"7","count":1,"resource":"pods"}`},
		{"MESSAGES.pods._._", `{"type":"GAP","from":"7","to":"9","reason":"expired","resource":"pods"}`},
		{"MESSAGES.pods.ns.a_b=5Fc=2A=3E=C3=A9=20=0D=0Ax",
			`{"type":"DELETED","revision":"9","id":"uid/9/deleted","resource":"pods","object":{"metadata":{"namespace":"ns","name":"a.b_c*\u003eé \r\nx","uid":"uid-a.b_c*\u003eé \r\nx","resourceVersion":"7"}}}`},
		{"MESSAGES.pods._._", ""},
	} {
		m, err := found.GetMsg(t.Context(), uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject != want.subject || string(m.Data) != want.body {
			t.Errorf("message %d is %s %s %q\nwant %+v", i+1, m.Subject, m.Data, m.Header, want)
		}
	}
	if info := found.CachedInfo(); info.State.LastSeq != 5 {
		t.Errorf("the stream has %d messages", info.State.LastSeq)
	}
	status, err := s.Status(t.Context())
	if err != nil || len(status) != 4 || status[2].ID.Resource != "pods" || status[2].Progress.Cursor != 9 ||
		!status[2].Active {
		t.Errorf("status: %+v, %v", status, err)
	}
}

// testWriters checks that the newest writer shuts out the others, also if they have not noticed it yet.
func testWriters(t *testing.T, server *natstest.Server) {
	address := "nats://" + server.Addr() + "/WRITERS"
	first, second := newSink(t, address), newSink(t, address)
	open(t, first)
	write(t, first, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	stored := open(t, second)
	want := []stream.Entry{{Key: keepwatch.Key{Namespace: "ns", Name: "a"}, UID: "uid-a", Revision: 5}}
	if e := slices.Collect(stored[0].Entries.All()); !slices.Equal(e, want) {
		t.Errorf("stored: %+v", e)
	}
	write(t, second, batch(2, 6, event(keepwatch.Added, "b", 6, `{}`)))
	err := first.Write(t.Context(), batch(2, 6, event(keepwatch.Added, "b", 6, `{}`)))
	if !errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "another program has published to stream WRITERS") {
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
}

// testReplaced opens a second sink, and then writes with the first one before it writes with the second. The second one
// continues, with what the first one has written.
func testReplaced(t *testing.T, server *natstest.Server) {
	address := "nats://" + server.Addr() + "/REPLACED"
	first, second := newSink(t, address), newSink(t, address)
	open(t, first)
	write(t, first, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	open(t, second)
	if err := first.Write(t.Context(), batch(2, 6, event(keepwatch.Added, "b", 6, `{}`))); !errors.As(err,
		new(*sink.Unavailable)) {
		t.Errorf("a writer that was replaced: %v", err)
	}
	first.Close()
	if err := second.Write(t.Context(), batch(2, 6, event(keepwatch.Added, "b", 6, `{}`))); !errors.As(err,
		new(*sink.Unavailable)) {
		t.Errorf("the second writer, whose stream has another message: %v", err)
	}
	second.Close()
	if stored := open(t, second); stored[0].Entries.Len() != 2 || stored[0].Progress.Cursor != 6 {
		t.Errorf("stored: %+v", stored[0])
	}
	write(t, second, batch(2, 7))
	if _, err := first.Open(t.Context(), sinktest.Streams()); err == nil ||
		!strings.Contains(err.Error(), "another keepwatch sync has taken over") {
		t.Errorf("the first writer opens again: %v", err)
	}
	write(t, second, batch(2, 8))

	// The second writer writes all the time, while a third one opens the sink once.
	ended, writing := make(chan error, 1), make(chan bool)
	go func() {
		for at := keepwatch.Revision(9); ; at++ {
			if err := second.Write(t.Context(), batch(2, at)); err != nil {
				ended <- err
				return
			}
			if at == 9 {
				close(writing)
			}
		}
	}()
	select {
	case <-writing:
	case err := <-ended:
		t.Fatal(err)
	}
	third := newSink(t, address)
	if _, err := third.Open(t.Context(), sinktest.Streams()); err != nil {
		t.Errorf("the third writer: %v", err)
	}
	if err := <-ended; !errors.As(err, new(*sink.Unavailable)) {
		t.Errorf("the second writer: %v", err)
	}
	second.Close()
	if _, err := second.Open(t.Context(), sinktest.Streams()); err == nil ||
		!strings.Contains(err.Error(), "another keepwatch sync has taken over") {
		t.Errorf("the second writer opens again: %v", err)
	}
}

// testForeign opens a sink for another cluster, and for another choice of namespaces: that is refused, and the writer
// goes on.
func testForeign(t *testing.T, server *natstest.Server) {
	address := "nats://" + server.Addr() + "/FOREIGN"
	first := newSink(t, address)
	open(t, first)
	write(t, first, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	streams := sinktest.Streams()
	for i := range streams {
		streams[i].ID.Cluster = stream.Cluster{UID: "another", Server: "https://another.example.com"}
	}
	if _, err := newSink(t, address).Open(t.Context(), streams); err == nil || errors.As(err, new(*sink.Unavailable)) {
		t.Errorf("another cluster: %v", err)
	}
	narrower := sinktest.Streams()[:1]
	narrower[0].ID.Namespace = "ns"
	if _, err := newSink(t, address).Open(t.Context(), narrower); err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "pods: it has these objects already, of another choice of namespaces") {
		t.Errorf("other namespaces: %v", err)
	}
	write(t, first, batch(1, 6))
	first.Close()
	if stored := open(t, first); stored[0].Progress.Cursor != 6 {
		t.Errorf("stored: %+v", stored[0])
	}
}

// testReturned delivers objects of a type that leaves and returns with the same objects: their ids are repeated, also
// within the time in which JetStream drops duplicates.
func testReturned(t *testing.T, server *natstest.Server) {
	s := newSink(t, "nats://"+server.Addr()+"/RETURNED")
	open(t, s)
	added := event(keepwatch.Added, "a", 5, `{}`)
	write(t, s, batch(1, 5, added, stream.Synced{Revision: 5, Count: 1}))
	deleted := event(keepwatch.Deleted, "a", 5, `{}`)
	deleted.Revision, deleted.ID = 9, "uid-a/9/deleted"
	write(t, s, batch(0, 9, stream.Gap{From: 5, To: 9, Reason: keepwatch.GapExpired}, deleted, stream.Synced{Revision: 9}))
	write(t, s, batch(1, 11, stream.Gap{From: 9, To: 11, Reason: keepwatch.GapDowntime}, added, stream.Synced{Revision: 11,
		Count: 1}))
	s.Close()
	if stored := open(t, s); stored[0].Entries.Len() != 1 || stored[0].Progress.Cursor != 11 {
		t.Errorf("stored: %+v", stored[0])
	}
}

// testOlder opens a stream that an earlier version has made, which allows no atomic batches.
func testOlder(t *testing.T, server *natstest.Server) {
	js := server.JetStream()
	config := jetstream.StreamConfig{Name: "OLDER", Subjects: []string{"OLDER.*.*.*"}, AllowDirect: true, MaxMsgs: 1000}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	s := newSink(t, "nats://"+server.Addr()+"/OLDER")
	open(t, s)
	write(t, s, batch(2, 6, event(keepwatch.Added, "a", 5, `{}`), event(keepwatch.Added, "b", 6, `{}`)))
	found, err := js.Stream(t.Context(), "OLDER")
	if err != nil || found.CachedInfo().State.LastSeq != 2 || found.CachedInfo().Config.MaxMsgs != 1000 {
		t.Errorf("the stream has %+v, %v", found.CachedInfo(), err)
	}
}

// testNames stores and deletes objects whose names are any text, as those of RBAC are: longer than a line of the
// protocol may be, too.
func testNames(t *testing.T, server *natstest.Server) {
	names := []string{"nul\x00", "line\nbreak", "ünï☃", strings.Repeat("long", 2_000), strings.Repeat("long", 2_000) +
		"er"}
	for _, path := range []string{"/NAMES", "/?kv=names"} {
		s := newSink(t, "nats://"+server.Addr()+path)
		open(t, s)
		var added, deleted []stream.Message
		for _, name := range names {
			added, deleted = append(added, event(keepwatch.Added, name, 5, `{}`)), append(deleted, event(keepwatch.Deleted, name,
				6, `{}`))
		}
		write(t, s, batch(uint64(len(names)), 5, added...))
		s.Close()
		var found []string
		for e := range open(t, s)[0].Entries.All() {
			found = append(found, e.Key.Name)
		}
		slices.Sort(found)
		if want := slices.Sorted(slices.Values(names)); !slices.Equal(found, want) {
			t.Errorf("%s: %.200q, want %.200q", path, found, want)
		}
		write(t, s, batch(0, 6, deleted...))
		s.Close()
		if left := open(t, s)[0].Entries.Len(); left > 0 {
			t.Errorf("%s: %d are left", path, left)
		}
	}
}

// testRefused checks what New and Open refuse, and that no message has a password.
func testRefused(t *testing.T, server *natstest.Server) {
	js := server.JetStream()
	for _, c := range []jetstream.StreamConfig{
		{Name: "QUEUE", Subjects: []string{"QUEUE.>"}, Retention: jetstream.WorkQueuePolicy},
		{Name: "LAST", Subjects: []string{"LAST.>"}, MaxMsgsPerSubject: 1},
		{Name: "KV_short", Subjects: []string{"$KV.short.>"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, MaxAge: time.Hour},
	} {
		if _, err := js.CreateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for address, want := range map[string]string{
		"nats://u:pa55word@" + server.Addr():                                   "the address needs a stream",
		"nats://u:pa55word@" + server.Addr() + "/A?kv=b":                       "a stream and a bucket",
		"nats://u:pa55word@" + server.Addr() + "/A.B":                          "letters, digits",
		"nats://u:pa55word@" + server.Addr() + "/A?subject=x.{uid}":            "{uid} is not known",
		"nats://u:pa55word@" + server.Addr() + "/A?subject={resource}":         "must begin with a name",
		"nats://u:pa55word@" + server.Addr() + "/A?subject=a..{resource}":      "an empty part",
		"nats://u:pa55word@" + server.Addr() + "/A?subjekt=a":                  "is not known",
		"nats://u:pa55word@" + server.Addr() + "/A?replicas=9":                 "replicas must be 1 to 5",
		"nats://u:12#pa55word@" + server.Addr() + "/a":                         "must be percent-encoded",
		"nats://u:?pa55word@" + server.Addr() + "/a":                           "must be percent-encoded",
		"nats://u:/pa55word@" + server.Addr() + "/a":                           "must be percent-encoded",
		"nats://u:pa%55word@[x/A":                                              "no valid host",
		"nats://" + server.Addr() + "/QUEUE":                                   "its consumers would remove",
		"nats://" + server.Addr() + "/LAST":                                    "a limit of messages per subject",
		"nats://" + server.Addr() + "/?kv=short":                               "has a TTL",
		"nats://" + server.Addr() + "/OVERLAP?subject=MESSAGES.{resource}.x.y": "subjects overlap",
	} {
		s, err := nats.New(address, nats.Options{})
		if err == nil {
			_, err = s.Open(t.Context(), sinktest.Streams())
		}
		if err == nil || errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "pa55word") {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	if found, err := js.Stream(t.Context(), "QUEUE"); err != nil || found.CachedInfo().Config.AllowAtomicPublish {
		t.Errorf("a stream that is refused was changed: %v", err)
	}
	if _, err := newSink(t, "nats://127.0.0.1:1/A").Open(t.Context(), nil); !errors.As(err, new(*sink.Unavailable)) {
		t.Errorf("a server that does not run: %v", err)
	}
}

// testLost checks that a stream which has lost messages is noticed, and that a bucket which was deleted is made again
// from the stream.
func testLost(t *testing.T, server *natstest.Server) {
	address := "nats://" + server.Addr() + "/LOST"
	s := newSink(t, address)
	open(t, s)
	write(t, s, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	s.Close()
	js := server.JetStream()
	if err := js.DeleteStream(t.Context(), "KV_keepwatch-LOST"); err != nil {
		t.Fatal(err)
	}
	if stored := open(t, s); stored[0].Entries.Len() != 1 || stored[0].Progress.Cursor != 5 {
		t.Errorf("after the loss of the bucket, stored is %+v", stored[0])
	}
	s.Close()
	if err := js.DeleteStream(t.Context(), "LOST"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), sinktest.Streams()); err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "ends at message 0, although message 1 was acknowledged") {
		t.Errorf("after the loss of the stream: %v", err)
	}
	if err := errors.Join(js.DeleteStream(t.Context(), "LOST"), js.DeleteStream(t.Context(), "KV_keepwatch-LOST")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), sinktest.Streams()); err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "bucket keepwatch-LOST has lost the cursor of pods at revision 5") {
		t.Errorf("after the loss of both: %v", err)
	}
	if stored := open(t, newSink(t, address)); stored[0].Entries.Len() > 0 {
		t.Errorf("another process has %d objects", stored[0].Entries.Len())
	}
}

// testPurged purges the bucket of a sink that is open: the check notices it, and the sink is not opened again.
func testPurged(t *testing.T, server *natstest.Server) {
	for name, bucket := range map[string]string{"?kv=PURGED": "KV_PURGED", "PURGEDLOG": "KV_keepwatch-PURGEDLOG"} {
		s := newSink(t, "nats://"+server.Addr()+"/"+name)
		open(t, s)
		for _, b := range []sink.Batch{
			batch(2, 6, event(keepwatch.Added, "a", 5, `{}`), event(keepwatch.Added, "b", 6, `{}`)),
			batch(1, 7, event(keepwatch.Deleted, "a", 7, `{}`)),
		} {
			write(t, s, b)
			if err := s.Check(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		found, err := server.JetStream().Stream(t.Context(), bucket)
		if err == nil {
			err = found.Purge(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); !errors.As(err, new(*sink.Unavailable)) ||
			!strings.Contains(err.Error(), "another program has changed "+bucket) {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
		stored, err := s.Open(t.Context(), sinktest.Streams())
		switch {
		case bucket == "KV_PURGED" && (err == nil || errors.As(err, new(*sink.Unavailable))),
			bucket != "KV_PURGED" && (err != nil || stored[0].Entries.Len() != 1): // the stream has all of it
			t.Errorf("%s is opened again: %+v, %v", name, stored, err)
		}
		s.Close()
	}
}

// testExpired writes messages that the bucket has no room for, and lets a limit of the stream remove them: the error
// names the limits.
func testExpired(t *testing.T, server *natstest.Server) {
	s := newSink(t, "nats://"+server.Addr()+"/EXPIRED")
	open(t, s)
	write(t, s, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	js := server.JetStream()
	bucket, err := js.Stream(t.Context(), "KV_keepwatch-EXPIRED")
	if err != nil {
		t.Fatal(err)
	}
	full := int64(bucket.CachedInfo().State.Msgs)
	reconfigure(t, js, "KV_keepwatch-EXPIRED", func(c *jetstream.StreamConfig) { c.MaxMsgs = full })
	if err := s.Write(t.Context(), batch(3, 7, event(keepwatch.Added, "b", 6, `{}`), event(keepwatch.Added, "c", 7,
		`{}`))); !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "maximum messages exceeded") {
		t.Fatalf("a full bucket: %v", err)
	}
	s.Close()
	reconfigure(t, js, "KV_keepwatch-EXPIRED", func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
	reconfigure(t, js, "EXPIRED", func(c *jetstream.StreamConfig) { c.MaxMsgs = 1 })
	if _, err := s.Open(t.Context(), sinktest.Streams()); err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "begins at message 3, and bucket keepwatch-EXPIRED has the objects up to message 1: "+
			"the limits of the stream") {
		t.Errorf("after messages have expired: %v", err)
	}
}

// reconfigure changes the configuration of a stream.
func reconfigure(t *testing.T, js jetstream.JetStream, name string, change func(*jetstream.StreamConfig)) {
	t.Helper()
	found, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	config := found.CachedInfo().Config
	change(&config)
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// testFull fills the stream, and then publishes an object that is too large for the server.
func testFull(t *testing.T, server *natstest.Server) {
	s := newSink(t, "nats://"+server.Addr()+"/FULL")
	open(t, s)
	js := server.JetStream()
	reconfigure(t, js, "FULL", func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 2, jetstream.DiscardNew })
	var many []stream.Message
	for i := range 5 {
		many = append(many, event(keepwatch.Added, fmt.Sprint("o-", i), keepwatch.Revision(i+1), `{"metadata":{}}`))
	}
	err := s.Write(t.Context(), batch(5, 5, many...))
	if !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "maximum messages exceeded") {
		t.Errorf("a full stream: %v", err)
	}
	s.Close()
	reconfigure(t, js, "FULL", func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
	// The first part of the piece counts.
	if stored := open(t, s); stored[0].Entries.Len() != 2 || stored[0].Progress.Cursor != 0 {
		t.Errorf("stored: %+v", stored[0])
	}
	// A bucket with a limit has no room for a batch that replaces its entries, and has room for each of them.
	k := newSink(t, "nats://"+server.Addr()+"/?kv=full")
	open(t, k)
	write(t, k, batch(5, 5, many...))
	limited, err := js.Stream(t.Context(), "KV_full")
	if err != nil {
		t.Fatal(err)
	}
	room := int64(limited.CachedInfo().State.Msgs) + 1
	reconfigure(t, js, "KV_full", func(c *jetstream.StreamConfig) { c.MaxMsgs = room })
	for i := range many {
		many[i] = event(keepwatch.Modified, fmt.Sprint("o-", i), keepwatch.Revision(i+11), `{"metadata":{}}`)
	}
	write(t, k, batch(5, 15, many...))

	err = s.Write(t.Context(), batch(3, 6, event(keepwatch.Added, "large", 6, `"`+strings.Repeat("x", 100_000)+`"`)))
	if !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "raise its max_payload") {
		t.Errorf("a large object: %v", err)
	}
}

// testCut cuts off the last message of a piece with many objects that are created and deleted, opens the sink twice,
// and repeats the piece, as a source does.
func testCut(t *testing.T, server *natstest.Server) {
	s := newSink(t, "nats://"+server.Addr()+"/CUT")
	open(t, s)
	write(t, s, batch(0, 1, stream.Synced{Revision: 1}))
	var messages []stream.Message
	revision := keepwatch.Revision(1)
	for i := range 1500 {
		name := fmt.Sprint("o-", i)
		messages = append(messages, event(keepwatch.Added, name, revision+1, `{}`), event(keepwatch.Deleted, name, revision+2,
			`{}`))
		revision += 2
	}
	revision++
	messages = append(messages, event(keepwatch.Added, "last", revision, `{}`))
	js := server.JetStream()
	found, err := js.Stream(t.Context(), "CUT")
	if err != nil {
		t.Fatal(err)
	}
	reconfigure(t, js, "CUT", func(c *jetstream.StreamConfig) {
		c.MaxMsgs, c.Discard = int64(len(messages)), jetstream.DiscardNew
	})
	if err := s.Write(t.Context(), batch(1, revision, messages...)); !errors.As(err, new(*sink.Unavailable)) {
		t.Fatalf("a full stream: %v", err)
	}
	s.Close()
	reconfigure(t, js, "CUT", func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
	for range 2 {
		if stored := open(t, s); stored[0].Entries.Len() != 0 || stored[0].Progress.Cursor != 1 {
			t.Fatalf("stored: %+v", stored[0])
		}
		s.Close()
	}
	open(t, s)
	write(t, s, batch(1, revision, messages...))
	if info, err := found.Info(t.Context()); err != nil || info.State.LastSeq != uint64(1+len(messages)) {
		t.Errorf("the stream ends at message %d, not at %d: %v", info.State.LastSeq, 1+len(messages), err)
	}
}

// TestSlow writes over a connection that needs longer for a batch than the sink waits for an answer, and then has an
// object for which the server would give up a batch.
func TestSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for longer than the sink waits for an answer: a minute")
	}
	t.Parallel() // it mostly waits
	server := natstest.Start(t, "")
	cutter := sinktest.NewCutter(t, server.Addr())
	s := newSink(t, "nats://"+cutter.Addr()+"/SLOW")
	open(t, s)
	sinktest.WriteSlowly(t, s, cutter, 32<<10, sinktest.Large(100, 12<<10), 30*time.Second)
	huge := batch(100, 201, event(keepwatch.Added, "first", 200, `{}`), event(keepwatch.Added, "huge", 201,
		sinktest.Incompressible(500<<10)))
	sinktest.WriteSlowly(t, s, cutter, 32<<10, huge, 10*time.Second)
	found, err := server.JetStream().Stream(t.Context(), "SLOW")
	if err != nil {
		t.Fatal(err)
	}
	if n := found.CachedInfo().State.Msgs; n != 102 {
		t.Errorf("the stream has %d messages", n)
	}
}

// testParts writes batches of which the server refuses a part before the last message.
func testParts(t *testing.T, server *natstest.Server) {
	s := newSink(t, "nats://"+server.Addr()+"/PARTS")
	open(t, s)
	js := server.JetStream()
	reconfigure(t, js, "PARTS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 })
	refused := func(why string) {
		t.Helper()
		if err := s.Write(t.Context(), sinktest.Large(100, 12<<10)); !errors.As(err, new(*sink.Unavailable)) ||
			!strings.Contains(err.Error(), why) {
			t.Errorf("%v, want one with %q", err, why)
		}
		s.Close()
	}
	refused("message size exceeds maximum allowed")
	open(t, s)
	if err := js.DeleteStream(t.Context(), "PARTS"); err != nil {
		t.Fatal(err)
	}
	refused("no stream accepts the subject")
}

// testCredentials changes the password of the server below an open sink.
func testCredentials(t *testing.T, server *natstest.Server) {
	with := func(password string) {
		server.Kill()
		server.Configure(fmt.Sprintf("authorization { user: sync, password: %q }", password))
		server.Restart()
	}
	with("first")
	file := filepath.Join(t.TempDir(), "password")
	stored := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stored("first\n")
	s := newSink(t, "nats://sync@"+server.Addr()+"/CREDENTIALS?password-file="+file)
	open(t, s)
	with("second")
	if err := s.Write(t.Context(), batch(0, 1)); !errors.As(err, new(*sink.Unavailable)) {
		t.Errorf("written after a restart: %v", err)
	}
	s.Close()
	if _, err := s.Open(t.Context(), sinktest.Streams()); !errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "the server refuses the user") {
		t.Errorf("with the old password: %v", err)
	}
	fresh := newSink(t, "nats://sync:wr0ng@"+server.Addr()+"/CREDENTIALS")
	if _, err := fresh.Open(t.Context(), sinktest.Streams()); err == nil || errors.As(err, new(*sink.Unavailable)) ||
		strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("at a start: %v", err)
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

// testRevoked revokes the permission to publish while the sink writes, and grants it again: nothing is lost.
func testRevoked(t *testing.T, server *natstest.Server) {
	permit := func(publish string) {
		server.Kill()
		server.Configure(
			fmt.Sprintf(
				`authorization { users: [ { user: sync, password: w, permissions: { publish: { %s }, subscribe: ">" } } ] }`,
				publish))
		server.Restart()
	}
	permit(`allow: ">"`)
	s := newSink(t, "nats://sync:w@"+server.Addr()+"/REVOKED")
	open(t, s)
	write(t, s, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	permit(`deny: "REVOKED.>"`)
	next := batch(2, 6, event(keepwatch.Added, "b", 6, `{}`))
	if err := s.Write(t.Context(), next); !errors.As(err, new(*sink.Unavailable)) {
		t.Fatalf("after a restart: %v", err)
	}
	s.Close()
	if stored, err := s.Open(t.Context(), sinktest.Streams()); err == nil {
		if stored[0].Entries.Len() != 1 {
			t.Errorf("stored: %+v", slices.Collect(stored[0].Entries.All()))
		}
		s.SetTimeout(time.Second) // the server does not answer
		if err := s.Write(t.Context(), next); !errors.As(err, new(*sink.Unavailable)) {
			t.Errorf("without permission: %v", err)
		}
		s.Close()
	} else if !errors.As(err, new(*sink.Unavailable)) {
		t.Fatalf("without permission: %v", err)
	}
	permit(`allow: ">"`)
	if stored := open(t, s); stored[0].Entries.Len() != 1 {
		t.Errorf("stored: %+v", slices.Collect(stored[0].Entries.All()))
	}
	write(t, s, next)
	s.Close()
	if stored := open(t, s); stored[0].Entries.Len() != 2 {
		t.Errorf("stored: %+v", slices.Collect(stored[0].Entries.All()))
	}
}

// BenchmarkPods writes pods of a large cluster; see [sinktest.Benchmark].
func BenchmarkPods(b *testing.B) {
	server := natstest.Start(b, "")
	n := 0
	sinktest.Benchmark(b, 5000, func() sink.Sink {
		n++
		return newSink(b, fmt.Sprintf("nats://%s/BENCH%d", server.Addr(), n))
	})
}
