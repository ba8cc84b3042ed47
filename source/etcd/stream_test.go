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
	"github.com/keepwatch/keepwatch/source/etcd"
)

// What a stream says, and what becomes of it: the changes, in brackets those that
// their batch shows to be old, and how far it came.
func TestStreams(t *testing.T) {
	unknown := event("a", 101)
	unknown.Type = 7
	foreign := event("a", 101)
	foreign.Kv.Key = []byte("/q/a")
	for name, test := range map[string]struct {
		says []*pb.WatchResponse
		want string
		end  keepwatch.FailureKind
	}{
		"a revision in fragments": {
			[]*pb.WatchResponse{fragment(event("a", 101), event("b", 102)), fragment(event("c", 102)), events(event("d", 102), event("e", 103)), cancelError("")},
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
		"the revision it began with": {
			[]*pb.WatchResponse{events(event("a", 100)), events(event("b", 101)), cancelError("")},
			"b@101 to 101", keepwatch.Ended,
		},
		"progress, once behind the time": {
			[]*pb.WatchResponse{progress(100), progress(104), progress(103), events(event("a", 105)), progress(107), cancelError("")},
			"a@105 to 107", keepwatch.Ended,
		},
		"progress ahead of the events it covers (etcd #15220)": {
			[]*pb.WatchResponse{progress(104), events(event("a", 103)), events(event("b", 105)), cancelError("")},
			"(a@103) b@105 to 105", keepwatch.Ended,
		},
		"a member that repeats itself (etcd #15271, #20221)": {
			[]*pb.WatchResponse{events(event("a", 101)), events(event("b", 102)), events(event("a", 101), event("b", 102), event("c", 103)), cancelError("")},
			"a@101 b@102 (a@101) (b@102) c@103 to 103", keepwatch.Ended,
		},
		"compaction":         {[]*pb.WatchResponse{{Canceled: true, CompactRevision: 110}}, "to 100", keepwatch.Expired},
		"an unknown type":    {[]*pb.WatchResponse{events(unknown)}, "to 100", keepwatch.ProtocolViolation},
		"a foreign key":      {[]*pb.WatchResponse{events(foreign)}, "to 100", keepwatch.ProtocolViolation},
		"an event of no key": {[]*pb.WatchResponse{{Events: []*mvccpb.Event{{}}}}, "to 100", keepwatch.ProtocolViolation},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testStream(t, test.says, test.want, test.end) })
		})
	}
}

func testStream(t *testing.T, responses []*pb.WatchResponse, want string, end keepwatch.FailureKind) {
	l, source := startScripted(t, etcd.Options{})
	l.script(append([]*pb.WatchResponse{created}, responses...)...)
	watch := must(source.Watch(t.Context(), 100))(t)
	defer watch.Close()
	defer time.AfterFunc(testTimeout, watch.Close).Stop()
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
		t.Errorf("it became %s, want %s", got.String(), want)
	}
}

// What can be wrong with a watch before it is one.
func TestWatchOpeningFails(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*scriptedServer)
		want    keepwatch.FailureKind
	}{
		"permission denied": {func(l *scriptedServer) {
			l.script(refuseWatch("rpc error: code = PermissionDenied desc = etcdserver: permission denied"))
		}, keepwatch.Forbidden},
		"an outdated token": {func(l *scriptedServer) {
			l.script(refuseWatch("rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"))
		}, keepwatch.Unauthorized},
		"a changed user": {func(l *scriptedServer) {
			l.script(refuseWatch("rpc error: code = InvalidArgument desc = etcdserver: revision of auth store is old"))
		}, keepwatch.Unauthorized},
		"compacted": {func(l *scriptedServer) {
			l.script(refuseWatch("etcdserver: mvcc: required revision has been compacted"))
		}, keepwatch.Expired},
		"an unknown reason": {func(l *scriptedServer) { l.script(refuseWatch("the moon is full")) }, keepwatch.UnknownStatus},
		"no confirmation":   {func(l *scriptedServer) { l.script(events(event("a", 101))) }, keepwatch.ProtocolViolation},
		"the end":           {func(l *scriptedServer) { l.watch = func(chan<- *pb.WatchResponse, <-chan *pb.WatchRequest) {} }, keepwatch.Ended},
		"silence":           {func(l *scriptedServer) { l.script() }, keepwatch.Idle},
		"silence after a word": {func(l *scriptedServer) {
			l.watch = func(says chan<- *pb.WatchResponse, asks <-chan *pb.WatchRequest) {
				<-asks
				time.Sleep(time.Second) // virtual
				says <- created
				for range asks {
				}
			}
			l.read = silent
		}, keepwatch.Idle},
		"no quorum": {func(l *scriptedServer) {
			l.script(created)
			l.read = func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
				return nil, status.Error(codes.Unavailable, "etcdserver: no leader")
			}
		}, keepwatch.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, source := startScripted(t, etcd.Options{})
				test.prepare(l)
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

// A watch asks for a sign of life three times within the idle timeout. As long as
// there is one it lives, and it has nothing to tell while the revision stays.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := startScripted(t, etcd.Options{})
		const answers = 100
		var asked atomic.Int64
		start := time.Now()
		l.watch = func(says chan<- *pb.WatchResponse, asks <-chan *pb.WatchRequest) {
			for r := range asks {
				if c := r.GetCreateRequest(); c != nil {
					if c.StartRevision != 100 || c.PrevKv || c.Fragment {
						t.Errorf("it asks for %v", c)
					}
					says <- created
				} else if asked.Add(1) <= answers {
					says <- progress(100)
				}
			}
		}
		watch := must(source.Watch(t.Context(), 100))(t)
		defer watch.Close()
		b, err := watch.Next()
		wantKind(t, err, keepwatch.Idle)
		if err == nil {
			t.Errorf("it tells of (%d, %d]", b.From, b.To)
		}
		lived := time.Since(start)
		if least := (answers - 1) * etcd.DefaultIdleTimeout / 3; lived < least || lived > least+2*etcd.DefaultIdleTimeout {
			t.Errorf("it lived for %v", lived)
		}
		if n := asked.Load(); n < answers+2 || n > answers+3 {
			t.Errorf("it was asked %d times for a sign of life", n)
		}
	})
}

// Who asks for the newest revision makes the watch ask until it is there: not more
// often than every 100 ms while nothing comes of it, and only one for all.
func TestProgressRequestsRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := startScripted(t, etcd.Options{})
		asked := 0
		l.watch = func(says chan<- *pb.WatchResponse, asks <-chan *pb.WatchRequest) {
			for r := range asks {
				switch {
				case r.GetCreateRequest() != nil:
					says <- created
				case asked >= 50:
					says <- progress(107)
				default:
					asked++
					if asked%2 == 0 {
						says <- progress(103) // a member that lags behind
					}
				}
			}
		}
		watch := must(source.Watch(t.Context(), 100))(t)
		defer watch.Close()
		start := time.Now()
		l.newest.Store(107)
		for range 10 {
			if newest := must(source.Newest(t.Context()))(t); newest != 107 {
				t.Errorf("the newest revision is %d", newest)
			}
		}
		if changes := readTo(t, watch, 100, 107); len(changes) != 0 {
			t.Errorf("there were changes: %s", describe(changes))
		}
		if took := time.Since(start); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("50 questions took %v", took)
		}
	})
}

// A watch that is opened behind the newest revision does not wait for the next sign
// of life to say that nothing has happened.
func TestProgressRequestedOnOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := startScripted(t, etcd.Options{})
		l.newest.Store(107)
		l.watch = func(says chan<- *pb.WatchResponse, asks <-chan *pb.WatchRequest) {
			<-asks
			says <- created
			<-asks // is not answered: there are events to be sent first
			for range asks {
				says <- progress(107)
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

// A consumer that takes its time is not taken for a silent etcd, nor is etcd asked
// for answers that nobody reads.
func TestBlockedConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, source := startScripted(t, etcd.Options{})
		var asked atomic.Int64
		revision := int64(100)
		l.watch = func(says chan<- *pb.WatchResponse, asks <-chan *pb.WatchRequest) {
			for r := range asks {
				if r.GetCreateRequest() == nil {
					asked.Add(1)
					continue
				}
				says <- created
				for range 5 { // each fills a batch
					revision++
					large := event("a", revision)
					large.Kv.Value = make([]byte, 1<<20)
					says <- events(large)
				}
			}
		}
		watch := must(source.Watch(t.Context(), 100))(t)
		defer watch.Close()
		time.Sleep(100 * etcd.DefaultIdleTimeout) // virtual
		if n := asked.Load(); n > 1 {
			t.Errorf("it was asked for progress %d times", n)
		}
		readTo(t, watch, 100, 105)
	})
}

// Another cluster at the same address is another history. Newest tells it to
// everybody and changes nothing; the reflector hears of it once.
func TestAnotherCluster(t *testing.T) {
	synctest.Test(t, testAnotherCluster)
}

func testAnotherCluster(t *testing.T) {
	l, source := startScripted(t, etcd.Options{})
	l.script(created)
	must(source.List(t.Context(), keepwatch.ListRequest{}))(t)
	l.cluster.Store(2)
	for range 2 {
		_, err := source.Newest(t.Context())
		wantKind(t, err, keepwatch.Rewound)
	}
	_, err := source.Watch(t.Context(), 100)
	wantKind(t, err, keepwatch.Rewound)
	must(source.List(t.Context(), keepwatch.ListRequest{}))(t)
	l.cluster.Store(3)
	_, err = source.List(t.Context(), keepwatch.ListRequest{})
	wantKind(t, err, keepwatch.Rewound)
	must(source.Newest(t.Context()))(t)
}
