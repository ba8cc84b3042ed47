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

	"github.com/keepwatch/keepwatch/server/source/etcd"
)

// scriptedServer is an etcd server whose answers the test decides: real servers do not
// send them on request.
type scriptedServer struct {
	pb.UnimplementedWatchServer
	pb.UnimplementedKVServer
	// watch answers a watch. It returns when requests is closed.
	watch func(out chan<- *pb.WatchResponse, requests <-chan *pb.WatchRequest)
	// read answers a range read; nil is newest.
	read func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error)
	// stream answers a streamed range read; nil is that of a server before etcd 3.7.
	stream   func(pb.KV_RangeStreamServer) error
	newest   atomic.Int64
	cluster  atomic.Uint64
	requests atomic.Int64 // of range reads
}

func (s *scriptedServer) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: s.cluster.Load(), Revision: s.newest.Load()}
}

func (s *scriptedServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.requests.Add(1)
	if s.read != nil {
		return s.read(ctx, r)
	}
	return &pb.RangeResponse{Header: s.header()}, nil
}

func (s *scriptedServer) RangeStream(r *pb.RangeRequest, out pb.KV_RangeStreamServer) error {
	if s.stream != nil {
		return s.stream(out)
	}
	return s.UnimplementedKVServer.RangeStream(r, out)
}

func (s *scriptedServer) Watch(server pb.Watch_WatchServer) error {
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
		s.watch(responses, requests)
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

// script makes watches send responses, and answer no request.
func (s *scriptedServer) script(responses ...*pb.WatchResponse) {
	s.watch = func(out chan<- *pb.WatchResponse, requests <-chan *pb.WatchRequest) {
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

// startScripted serves a scriptedServer until the test ends, and returns a source for it.
// In a synctest bubble the time of both is virtual.
func startScripted(tb testing.TB, opts etcd.Options) (*scriptedServer, *etcd.Source) {
	tb.Helper()
	s := &scriptedServer{}
	s.newest.Store(100)
	s.cluster.Store(1)
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	pb.RegisterWatchServer(server, s)
	pb.RegisterKVServer(server, s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(listener)
	}()
	tb.Cleanup(func() { server.Stop(); <-ended })
	client := dial(tb, clientv3.Config{Endpoints: []string{"scripted"}, DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	}})
	opts.Prefix = "/p/"
	return s, newSource(tb, client, opts)
}

var created = &pb.WatchResponse{Created: true, Header: &pb.ResponseHeader{Revision: 100, ClusterId: 1}}

// event returns the event of a key's first put.
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

// refuseWatch returns the response with which etcd refuses to register a watch.
func refuseWatch(reason string) *pb.WatchResponse {
	r := cancelError(reason)
	r.Created, r.WatchId = true, -1
	return r
}
