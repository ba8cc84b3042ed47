package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/source/etcd"
)

// A watch turns the responses of a stream into batches. The expected text has the changes,
// in brackets those below their batch's From, and the last revision.
func TestStreams(t *testing.T) {
	unknown := event("a", 101)
	unknown.Type = 7
	foreign := event("a", 101)
	foreign.Kv.Key = []byte("/q/a")
	for name, test := range map[string]struct {
		responses []*pb.WatchResponse
		want      string
		end       keepwatch.FailureKind
	}{
		"a revision in fragments": {
			[]*pb.WatchResponse{fragment(event("a", 101), event("b", 102)), fragment(event("c", 102)), events(event("d", 102),
				event("e", 103)), cancelError("")},
			"a@101 b@102 c@102 d@102 e@103 to 103", keepwatch.Ended,
		},
		"an end between the fragments of a revision": {
			[]*pb.WatchResponse{fragment(event("a", 101), event("b", 102)), cancelError("")},
			"a@101 to 101", keepwatch.Ended,
		},
		"progress between the fragments of a revision": {
			[]*pb.WatchResponse{fragment(event("a", 101)), progress(104), events(event("b", 101)), cancelError("")},
			"(a@101) (b@101) to 104", keepwatch.Ended,
		},
		"the first revision": {
			[]*pb.WatchResponse{events(event("a", 100)), events(event("b", 101)), cancelError("")},
			"b@101 to 101", keepwatch.Ended,
		},
		"progress, once below the last": {
			[]*pb.WatchResponse{progress(100), progress(104), progress(103), events(event("a", 105)), progress(107),
				cancelError("")},
			"a@105 to 107", keepwatch.Ended,
		},
		"progress ahead of the events it covers (etcd #15220)": {
			[]*pb.WatchResponse{progress(104), events(event("a", 103)), events(event("b", 105)), cancelError("")},
			"(a@103) b@105 to 105", keepwatch.Ended,
		},
		"a member that repeats events (etcd #15271, #20221)": {
			[]*pb.WatchResponse{events(event("a", 101)), events(event("b", 102)), events(event("a", 101), event("b", 102),
				event("c", 103)), cancelError("")},
			"a@101 b@102 (a@101) (b@102) c@103 to 103", keepwatch.Ended,
		},
		"compaction":             {[]*pb.WatchResponse{{Canceled: true, CompactRevision: 110}}, "to 100", keepwatch.Expired},
		"an unknown type":        {[]*pb.WatchResponse{events(unknown)}, "to 100", keepwatch.ProtocolViolation},
		"a foreign key":          {[]*pb.WatchResponse{events(foreign)}, "to 100", keepwatch.ProtocolViolation},
		"an event without a key": {[]*pb.WatchResponse{{Events: []*mvccpb.Event{{}}}}, "to 100", keepwatch.ProtocolViolation},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testStream(t, test.responses, test.want, test.end) })
		})
	}
}

func testStream(t *testing.T, responses []*pb.WatchResponse, want string, end keepwatch.FailureKind) {
	server, source := startScripted(t, etcd.Options{})
	server.script(append([]*pb.WatchResponse{created}, responses...)...)
	watch := must(source.Watch(t.Context(), 100))(t)
	defer watch.Close()
	defer time.AfterFunc(await.Deadline, watch.Close).Stop()
	var got strings.Builder
	at := keepwatch.Revision(100)
	for {
		b, err := watch.Next()
		if err != nil {
			wantKind(t, err, end)
			break
		}
		if b.From != at || b.To < b.From {
			t.Errorf("batch (%d, %d] follows %d", b.From, b.To, at)
		}
		at = b.To
		for _, c := range b.Changes {
			word := "%s@%d "
			if c.Revision <= b.From {
				word = "(%s@%d) "
			}
			fmt.Fprintf(&got, word, c.Object.Key(), c.Revision)
		}
	}
	fmt.Fprintf(&got, "to %d", at)
	if got.String() != want {
		t.Errorf("the watch delivers %s, want %s", got.String(), want)
	}
}

// Watch returns the failures of a stream that is being opened.
func TestWatchOpeningFails(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*scriptedServer)
		want    keepwatch.FailureKind
	}{
		"permission denied": {func(server *scriptedServer) {
			server.script(refuseWatch("rpc error: code = PermissionDenied desc = etcdserver: permission denied"))
		}, keepwatch.Forbidden},
		"an outdated token": {func(server *scriptedServer) {
			server.script(refuseWatch("rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"))
		}, keepwatch.Unauthorized},
		"a changed user": {func(server *scriptedServer) {
			server.script(refuseWatch("rpc error: code = InvalidArgument desc = etcdserver: revision of auth store is old"))
		}, keepwatch.Unauthorized},
		"compacted": {func(server *scriptedServer) {
			server.script(refuseWatch("etcdserver: mvcc: required revision has been compacted"))
		}, keepwatch.Expired},
		"an unknown reason": {func(server *scriptedServer) { server.script(refuseWatch("the moon is full")) },
			keepwatch.UnknownStatus},
		"no confirmation": {func(server *scriptedServer) { server.script(events(event("a", 101))) },
			keepwatch.ProtocolViolation},
		"end of stream": {func(server *scriptedServer) {
			server.watch = func(chan<- *pb.WatchResponse, <-chan *pb.WatchRequest) {}
		}, keepwatch.Ended},
		"no answer": {func(server *scriptedServer) { server.script() }, keepwatch.Idle},
		"no answer to the quorum read": {func(server *scriptedServer) {
			server.watch = func(out chan<- *pb.WatchResponse, requests <-chan *pb.WatchRequest) {
				<-requests
				time.Sleep(time.Second) // virtual
				out <- created
				for range requests {
				}
			}
			server.read = silent
		}, keepwatch.Idle},
		"no quorum": {func(server *scriptedServer) {
			server.script(created)
			server.read = func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
				return nil, status.Error(codes.Unavailable, "etcdserver: no leader")
			}
		}, keepwatch.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, source := startScripted(t, etcd.Options{})
				test.prepare(server)
				watch, err := source.Watch(t.Context(), 100)
				if err == nil {
					watch.Close()
				}
				wantKind(t, err, test.want)
			})
		})
	}
}

func silent(ctx context.Context, _ *pb.RangeRequest) (*pb.RangeResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A watch requests progress three times within the idle timeout. It stays open while etcd
// answers, and delivers nothing while the revision does not change.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, source := startScripted(t, etcd.Options{})
		const answers = 100
		var requested atomic.Int64
		start := time.Now()
		server.watch = func(out chan<- *pb.WatchResponse, requests <-chan *pb.WatchRequest) {
			for r := range requests {
				if c := r.GetCreateRequest(); c != nil {
					if c.StartRevision != 100 || c.PrevKv || c.Fragment {
						t.Errorf("the create request is %v", c)
					}
					out <- created
				} else if requested.Add(1) <= answers {
					out <- progress(100)
				}
			}
		}
		watch := must(source.Watch(t.Context(), 100))(t)
		defer watch.Close()
		b, err := watch.Next()
		wantKind(t, err, keepwatch.Idle)
		if err == nil {
			t.Errorf("the watch delivers (%d, %d]", b.From, b.To)
		}
		lived := time.Since(start)
		if least := (answers - 1) * etcd.DefaultIdleTimeout / 3; lived < least || lived > least+2*etcd.DefaultIdleTimeout {
			t.Errorf("the watch was open for %v", lived)
		}
		if n := requested.Load(); n < answers+2 || n > answers+3 {
			t.Errorf("progress was requested %d times", n)
		}
	})
}

// Newest makes the watch request progress until it reaches the revision: every 100 ms, and
// once for all callers.
func TestProgressRequestsRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, source := startScripted(t, etcd.Options{})
		requested := 0
		server.watch = func(out chan<- *pb.WatchResponse, requests <-chan *pb.WatchRequest) {
			for r := range requests {
				switch {
				case r.GetCreateRequest() != nil:
					out <- created
				case requested >= 50:
					out <- progress(107)
				default:
					requested++
					if requested%2 == 0 {
						out <- progress(103) // a member that lags behind
					}
				}
			}
		}
		watch := must(source.Watch(t.Context(), 100))(t)
		defer watch.Close()
		start := time.Now()
		server.newest.Store(107)
		for range 10 {
			if newest := must(source.Newest(t.Context()))(t); newest != 107 {
				t.Errorf("the newest revision is %d", newest)
			}
		}
		if changes := readTo(t, watch, 100, 107); len(changes) != 0 {
			t.Errorf("there were changes: %s", describe(changes))
		}
		if took := time.Since(start); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("50 requests took %v", took)
		}
	})
}

// A watch that is opened below the newest revision requests progress at once.
func TestProgressRequestedOnOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, source := startScripted(t, etcd.Options{})
		server.newest.Store(107)
		server.watch = func(out chan<- *pb.WatchResponse, requests <-chan *pb.WatchRequest) {
			<-requests
			out <- created
			<-requests // not answered: etcd has events to send
			for range requests {
				out <- progress(107)
			}
		}
		start := time.Now()
		watch := must(source.Watch(t.Context(), 100))(t)
		defer watch.Close()
		readTo(t, watch, 100, 107)
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// While the consumer does not read, the idle timeout does not pass, and the watch requests
// no progress.
func TestBlockedConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, source := startScripted(t, etcd.Options{})
		var requested atomic.Int64
		revision := int64(100)
		server.watch = func(out chan<- *pb.WatchResponse, requests <-chan *pb.WatchRequest) {
			for r := range requests {
				if r.GetCreateRequest() == nil {
					requested.Add(1)
					continue
				}
				out <- created
				for range 5 { // each fills a batch
					revision++
					large := event("a", revision)
					large.Kv.Value = make([]byte, 1<<20)
					out <- events(large)
				}
			}
		}
		watch := must(source.Watch(t.Context(), 100))(t)
		defer watch.Close()
		time.Sleep(100 * etcd.DefaultIdleTimeout) // virtual
		if n := requested.Load(); n > 1 {
			t.Errorf("progress was requested %d times", n)
		}
		readTo(t, watch, 100, 105)
	})
}

// Another cluster at the same address is another history. Newest returns Rewound on each
// call; Watch and List return it once, and then continue with the new cluster.
func TestAnotherCluster(t *testing.T) {
	synctest.Test(t, testAnotherCluster)
}

func testAnotherCluster(t *testing.T) {
	server, source := startScripted(t, etcd.Options{})
	server.script(created)
	must(source.List(t.Context(), keepwatch.ListRequest{}))(t)
	server.cluster.Store(2)
	for range 2 {
		_, err := source.Newest(t.Context())
		wantKind(t, err, keepwatch.Rewound)
	}
	_, err := source.Watch(t.Context(), 100)
	wantKind(t, err, keepwatch.Rewound)
	must(source.List(t.Context(), keepwatch.ListRequest{}))(t)
	server.cluster.Store(3)
	_, err = source.List(t.Context(), keepwatch.ListRequest{})
	wantKind(t, err, keepwatch.Rewound)
	must(source.Newest(t.Context()))(t)
}
