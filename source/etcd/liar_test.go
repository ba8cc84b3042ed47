package etcd_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/etcd"
)

// liar is an etcd that says what a test wants it to say.
type liar struct {
	pb.UnimplementedWatchServer
	pb.UnimplementedKVServer
	// watch answers a watch. It ends with the client's.
	watch func(says chan<- *pb.WatchResponse, asks <-chan *pb.WatchRequest)
	// read answers a range read; nil is newest.
	read     func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error)
	newest   atomic.Int64
	cluster  atomic.Uint64
	requests atomic.Int64 // of range reads
}

func (l *liar) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: l.cluster.Load(), Revision: l.newest.Load()}
}

func (l *liar) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	l.requests.Add(1)
	if l.read != nil {
		return l.read(ctx, r)
	}
	return &pb.RangeResponse{Header: l.header()}, nil
}

func (l *liar) Watch(server pb.Watch_WatchServer) error {
	says, asks := make(chan *pb.WatchResponse), make(chan *pb.WatchRequest)
	gone := server.Context().Done()
	go func() {
		defer close(asks)
		for {
			r, err := server.Recv()
			if err != nil {
				return
			}
			select {
			case asks <- r:
			case <-gone:
				return
			}
		}
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.watch(says, asks)
	}()
	for {
		select {
		case r := <-says:
			if err := server.Send(r); err != nil {
				return err
			}
		case <-ended:
			return nil
		case <-gone:
			return nil
		}
	}
}

// script is a watch that says this, and answers nothing.
func (l *liar) script(responses ...*pb.WatchResponse) {
	l.watch = func(says chan<- *pb.WatchResponse, asks <-chan *pb.WatchRequest) {
		for _, r := range responses {
			for sent := false; !sent; {
				select {
				case says <- r:
					sent = true
				case _, ok := <-asks:
					if !ok {
						return
					}
				}
			}
		}
		for range asks {
		}
	}
}

// startLiar serves a liar for the duration of the test, and makes a source of it.
func startLiar(tb testing.TB, opts etcd.Options) (*liar, *etcd.Source) {
	tb.Helper()
	l := &liar{}
	l.newest.Store(100)
	l.cluster.Store(1)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(tb)
	server := grpc.NewServer()
	pb.RegisterWatchServer(server, l)
	pb.RegisterKVServer(server, l)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(listener)
	}()
	tb.Cleanup(func() { server.Stop(); <-ended })
	client := dial(tb, clientv3.Config{Endpoints: []string{listener.Addr().String()}})
	opts.Prefix = "/p/"
	return l, newSource(tb, client, opts)
}

var created = &pb.WatchResponse{Created: true, Header: &pb.ResponseHeader{Revision: 100, ClusterId: 1}}

// event is a put of a key at a revision; a fresh one is its first.
func event(key string, revision int64) *mvccpb.Event {
	return &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: &mvccpb.KeyValue{
		Key: []byte("/p/" + key), ModRevision: revision, CreateRevision: revision, Version: 1,
	}}
}

func events(events ...*mvccpb.Event) *pb.WatchResponse {
	return &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: events[len(events)-1].Kv.ModRevision}, Events: events}
}

func fragment(es ...*mvccpb.Event) *pb.WatchResponse {
	r := events(es...)
	r.Fragment = true
	return r
}

func progress(revision int64) *pb.WatchResponse {
	return &pb.WatchResponse{WatchId: -1, Header: &pb.ResponseHeader{Revision: revision}}
}

func cancelled(reason string) *pb.WatchResponse {
	return &pb.WatchResponse{Canceled: true, CancelReason: reason, Header: &pb.ResponseHeader{Revision: 100}}
}

// refused is how etcd refuses to register a watch.
func refused(reason string) *pb.WatchResponse {
	r := cancelled(reason)
	r.Created, r.WatchId = true, -1
	return r
}

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
			[]*pb.WatchResponse{fragment(event("a", 101), event("b", 102)), fragment(event("c", 102)), events(event("d", 102), event("e", 103)), cancelled("")},
			"a@101 b@102 c@102 d@102 e@103 to 103", keepwatch.Ended,
		},
		"an end between the fragments of a revision": {
			[]*pb.WatchResponse{fragment(event("a", 101), event("b", 102)), cancelled("")},
			"a@101 to 101", keepwatch.Ended,
		},
		"the revision it began with": {
			[]*pb.WatchResponse{events(event("a", 100)), events(event("b", 101)), cancelled("")},
			"b@101 to 101", keepwatch.Ended,
		},
		"progress, once behind the time": {
			[]*pb.WatchResponse{progress(100), progress(104), progress(103), events(event("a", 105)), progress(107), cancelled("")},
			"a@105 to 107", keepwatch.Ended,
		},
		"progress ahead of the events it covers (etcd #15220)": {
			[]*pb.WatchResponse{progress(104), events(event("a", 103)), events(event("b", 105)), cancelled("")},
			"(a@103) b@105 to 105", keepwatch.Ended,
		},
		"a member that repeats itself (etcd #15271, #20221)": {
			[]*pb.WatchResponse{events(event("a", 101)), events(event("b", 102)), events(event("a", 101), event("b", 102), event("c", 103)), cancelled("")},
			"a@101 b@102 (a@101) (b@102) c@103 to 103", keepwatch.Ended,
		},
		"compaction":         {[]*pb.WatchResponse{{Canceled: true, CompactRevision: 110}}, "to 100", keepwatch.Expired},
		"an unknown type":    {[]*pb.WatchResponse{events(unknown)}, "to 100", keepwatch.ProtocolViolation},
		"a foreign key":      {[]*pb.WatchResponse{events(foreign)}, "to 100", keepwatch.ProtocolViolation},
		"an event of no key": {[]*pb.WatchResponse{{Events: []*mvccpb.Event{{}}}}, "to 100", keepwatch.ProtocolViolation},
	} {
		t.Run(name, func(t *testing.T) {
			l, source := startLiar(t, etcd.Options{})
			l.script(append([]*pb.WatchResponse{created}, test.says...)...)
			watch := must(source.Watch(t.Context(), 100))(t)
			defer watch.Close()
			defer time.AfterFunc(patience, watch.Close).Stop()
			var got strings.Builder
			at := keepwatch.Revision(100)
			for {
				b, err := watch.Next()
				if err != nil {
					wantKind(t, err, test.end)
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
			if got.String() != test.want {
				t.Errorf("it became %s, want %s", got.String(), test.want)
			}
		})
	}
}

// What can be wrong with a watch before it is one.
func TestOpening(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*liar)
		want    keepwatch.FailureKind
	}{
		"permission denied": {func(l *liar) {
			l.script(refused("rpc error: code = PermissionDenied desc = etcdserver: permission denied"))
		}, keepwatch.Forbidden},
		"an outdated token": {func(l *liar) {
			l.script(refused("rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"))
		}, keepwatch.Unauthorized},
		"a changed user": {func(l *liar) {
			l.script(refused("rpc error: code = InvalidArgument desc = etcdserver: revision of auth store is old"))
		}, keepwatch.Unauthorized},
		"compacted":            {func(l *liar) { l.script(refused("etcdserver: mvcc: required revision has been compacted")) }, keepwatch.Expired},
		"an unknown reason":    {func(l *liar) { l.script(refused("the moon is full")) }, keepwatch.UnknownStatus},
		"no confirmation":      {func(l *liar) { l.script(events(event("a", 101))) }, keepwatch.ProtocolViolation},
		"the end":              {func(l *liar) { l.watch = func(chan<- *pb.WatchResponse, <-chan *pb.WatchRequest) {} }, keepwatch.Ended},
		"silence":              {func(l *liar) { l.script() }, keepwatch.Idle},
		"silence after a word": {func(l *liar) { l.script(created); l.read = silent }, keepwatch.Idle},
		"no quorum": {func(l *liar) {
			l.script(created)
			l.read = func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
				return nil, status.Error(codes.Unavailable, "etcdserver: no leader")
			}
		}, keepwatch.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			l, source := startLiar(t, etcd.Options{IdleTimeout: 500 * time.Millisecond})
			test.prepare(l)
			watch, err := source.Watch(t.Context(), 100)
			if err == nil {
				watch.Close()
			}
			wantKind(t, err, test.want)
		})
	}
}

func silent(ctx context.Context, _ *pb.RangeRequest) (*pb.RangeResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A stream that has been opened and then says nothing is half-open, perhaps.
func TestSilentWatch(t *testing.T) {
	l, source := startLiar(t, etcd.Options{IdleTimeout: 300 * time.Millisecond})
	asked := make(chan struct{}, 100)
	l.watch = func(says chan<- *pb.WatchResponse, asks <-chan *pb.WatchRequest) {
		for r := range asks {
			if r.GetCreateRequest() != nil {
				says <- created
			} else if r.GetProgressRequest() != nil {
				asked <- struct{}{}
			}
		}
	}
	watch := must(source.Watch(t.Context(), 100))(t)
	defer watch.Close()
	wantKind(t, last(t, watch), keepwatch.Idle)
	if len(asked) == 0 {
		t.Error("it was not asked for a sign of life")
	}
}

// Another cluster at the same address is another history. Newest tells it to
// everybody and changes nothing; the reflector hears of it once.
func TestAnotherCluster(t *testing.T) {
	l, source := startLiar(t, etcd.Options{})
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
