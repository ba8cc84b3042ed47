package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// EtcdProxy forwards every call to an etcd, and records the reads of ranges.
type EtcdProxy struct {
	EtcdServer // with the proxy's endpoint
	conn       *grpc.ClientConn

	mu    sync.Mutex
	reads []EtcdRead
	held  map[string]chan struct{} // of prefixes whose reads wait, by prefix
}

// EtcdRead is a read of a key or a range. A read that counts only is how Keepwatch asks for the newest
// revision.
type EtcdRead struct {
	Key       string
	CountOnly bool
}

// ProxyEtcd starts a proxy of an etcd for the duration of the test.
func ProxyEtcd(tb testing.TB, etcd *EtcdServer) *EtcdProxy {
	tb.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(string(etcd.Endpoint), "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &EtcdProxy{EtcdServer: *etcd, conn: conn, held: map[string]chan struct{}{}}
	p.Endpoint = Endpoint("http://" + listener.Addr().String())
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(p.forward),
		grpc.MaxRecvMsgSize(64<<20))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	tb.Cleanup(func() {
		server.Stop()
		<-ended
		conn.Close()
	})
	return p
}

// Reads returns the reads below a prefix since the start.
func (p *EtcdProxy) Reads(prefix string) (all []EtcdRead) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.reads {
		if strings.HasPrefix(r.Key, prefix) {
			all = append(all, r)
		}
	}
	return all
}

// Hold makes the reads below a prefix wait until release is called.
func (p *EtcdProxy) Hold(prefix string) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	released := make(chan struct{})
	p.held[prefix] = released
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.held, prefix)
		close(released)
	})
}

// record records a read, and waits while its prefix is held.
func (p *EtcdProxy) record(ctx context.Context, message []byte) {
	request := &pb.RangeRequest{}
	if proto.Unmarshal(message, request) != nil {
		return // etcd answers with the error
	}
	p.mu.Lock()
	p.reads = append(p.reads, EtcdRead{string(request.Key), request.CountOnly})
	var released chan struct{}
	for prefix, held := range p.held {
		if strings.HasPrefix(string(request.Key), prefix) {
			released = held
		}
	}
	p.mu.Unlock()
	if released != nil {
		select {
		case <-released:
		case <-ctx.Done():
		}
	}
}

// forward forwards one call.
func (p *EtcdProxy) forward(_ any, from grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(from)
	about, _ := metadata.FromIncomingContext(from.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(from.Context(), about))
	defer cancel()
	to, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			var message []byte
			if err := from.RecvMsg(&message); err != nil {
				if errors.Is(err, io.EOF) {
					_ = to.CloseSend()
				}
				return // otherwise the call's context ends
			}
			if method == pb.KV_Range_FullMethodName || method == pb.KV_RangeStream_FullMethodName {
				p.record(ctx, message)
			}
			if to.SendMsg(&message) != nil {
				return // RecvMsg returns the error
			}
		}
	}()
	for {
		var message []byte
		if err := to.RecvMsg(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := from.SendMsg(&message); err != nil {
			return err
		}
	}
}

// rawCodec leaves messages as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(message any) (mem.BufferSlice, error) {
	b, ok := message.(*[]byte)
	if !ok {
		return nil, status.Errorf(codes.Internal, "a %T is no message", message)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, message any) error {
	b, ok := message.(*[]byte)
	if !ok {
		return status.Errorf(codes.Internal, "a %T is no message", message)
	}
	*b = data.Materialize()
	return nil
}
