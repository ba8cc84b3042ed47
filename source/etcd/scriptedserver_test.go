package etcd_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/keepwatch/keepwatch/source/etcd"
)

// liar is an etcd that says what a test wants it to say.
type scriptedServer struct {
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

func (l *scriptedServer) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: l.cluster.Load(), Revision: l.newest.Load()}
}

func (l *scriptedServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	l.requests.Add(1)
	if l.read != nil {
		return l.read(ctx, r)
	}
	return &pb.RangeResponse{Header: l.header()}, nil
}

func (l *scriptedServer) Watch(server pb.Watch_WatchServer) error {
	responses, requests := make(chan *pb.WatchResponse), make(chan *pb.WatchRequest)
	done := server.Context().Done()
	go func() {
		defer close(requests)
		for {
			r, err := server.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-done:
				return
			}
		}
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.watch(responses, requests)
	}()
	for {
		select {
		case r := <-responses:
			if err := server.Send(r); err != nil {
				return err
			}
		case <-ended:
			return nil
		case <-done:
			return nil
		}
	}
}

// script is a watch that says this, and answers nothing.
func (l *scriptedServer) script(responses ...*pb.WatchResponse) {
	l.watch = func(out chan<- *pb.WatchResponse, requests <-chan *pb.WatchRequest) {
		for _, r := range responses {
			for sent := false; !sent; {
				select {
				case out <- r:
					sent = true
				case _, ok := <-requests:
					if !ok {
						return
					}
				}
			}
		}
		for range requests {
		}
	}
}

// startLiar serves a liar for the duration of the test, and makes a source of it.
// In a bubble of synctest the time between the two is virtual.
func startScripted(tb testing.TB, opts etcd.Options) (*scriptedServer, *etcd.Source) {
	tb.Helper()
	l := &scriptedServer{}
	l.newest.Store(100)
	l.cluster.Store(1)
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	pb.RegisterWatchServer(server, l)
	pb.RegisterKVServer(server, l)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(listener)
	}()
	tb.Cleanup(func() { server.Stop(); <-ended })
	client := dial(tb, clientv3.Config{Endpoints: []string{"liar"}, DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	}})
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

func cancelError(reason string) *pb.WatchResponse {
	return &pb.WatchResponse{Canceled: true, CancelReason: reason, Header: &pb.ResponseHeader{Revision: 100}}
}

// refused is how etcd refuses to register a watch.
func refuseWatch(reason string) *pb.WatchResponse {
	r := cancelError(reason)
	r.Created, r.WatchId = true, -1
	return r
}
