package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keepwatch/keepwatch"
)

// stream is a gRPC stream with one watch in it, made without the watcher of
// etcd's client: that one multiplexes watches, goes on by itself at the next member
// after a failure, and reads ahead without a bound.
type stream struct {
	rpc    pb.Watch_WatchClient
	source *Source
	ctx    context.Context // client's own is done as soon as the stream has ended
	cancel context.CancelFunc
}

// dial opens a stream and asks for what happens to a range of keys from a revision
// on; nil as end is one key. It ends with ctx, when its member sees no leader, and
// by cancel.
func (s *Source) openStream(ctx context.Context, key, end []byte, from keepwatch.Revision) (*stream, *keepwatch.Failure) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	rpc, err := s.watcher.Watch(ctx, grpc.MaxCallRecvMsgSize(s.maxMessage), grpc.ForceCodecV2(wireCodec))
	if err != nil {
		defer cancel()
		return nil, s.failure(ctx, "watch", err)
	}
	// An error of Send is io.EOF; what it stands for comes with the answer.
	_ = rpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: key, RangeEnd: end, StartRevision: int64(from), ProgressNotify: true, Fragment: s.fragments.Load(),
	}}})
	return &stream{rpc, s, ctx, cancel}, nil
}

// next receives a message. A failure is the last.
//
// After one that is too large, the source's streams ask for fragments: not before,
// since the time in which etcd makes one is quadratic in its events.
func (s *stream) next() (*pb.WatchResponse, *keepwatch.Failure) {
	response, err := s.rpc.Recv()
	switch {
	case err != nil:
		if isTooLarge(err) {
			s.source.fragments.Store(true)
		}
		return nil, s.source.failure(s.ctx, "watch", err)
	case response.CompactRevision != 0:
		return response, keepwatch.Failed(keepwatch.Expired, "watch %s: etcd has compacted its history up to revision %d",
			s.source.prefix, response.CompactRevision)
	case response.Canceled:
		return nil, s.source.failure(s.ctx, "watch", cancelError(response))
	}
	return response, nil
}

func cancelError(response *pb.WatchResponse) error {
	if response.CancelReason == "" {
		return status.Error(codes.Canceled, "etcd ended the watch")
	}
	return cancelReason(response.CancelReason)
}

// created receives the first message, which says that the watch is registered.
func (s *stream) waitCreated() *keepwatch.Failure {
	response, failure := s.next()
	if failure == nil && !response.Created {
		failure = s.source.protocolViolation("a watch begins without its confirmation")
	}
	return failure
}

// askProgress asks how far the watch has come. The answer is a message without
// events, or none if it has events to send first.
func (s *stream) sendProgressRequest() {
	_ = s.rpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func (s *Source) protocolViolation(message string) *keepwatch.Failure {
	return &keepwatch.Failure{Kind: keepwatch.ProtocolViolation, Err: errors.New("watch " + string(s.prefix) + ": " + message)}
}
