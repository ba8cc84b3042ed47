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

// stream is a gRPC stream with one watch. It does not use the watcher of etcd's client,
// which multiplexes watches, resumes at another member after a failure without notice, and
// reads ahead without a bound.
type stream struct {
	rpc    pb.Watch_WatchClient
	source *Source
	ctx    context.Context // that of rpc is done as soon as the stream has ended
	cancel context.CancelFunc
}

// openStream opens a stream that watches a range of keys from a revision on; if end is
// nil, one key. The stream ends with ctx, when its member has no leader, and by cancel.
func (s *Source) openStream(ctx context.Context, key, end []byte,
	from keepwatch.Revision) (*stream, *keepwatch.Failure) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	rpc, err := s.watcher.Watch(ctx, grpc.MaxCallRecvMsgSize(s.maxMessage), grpc.ForceCodecV2(wireCodec))
	if err != nil {
		defer cancel()
		return nil, s.failure(ctx, "watch", err)
	}
	// Send can only return io.EOF; Recv returns the stream's error.
	_ = rpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: key, RangeEnd: end, StartRevision: int64(from), ProgressNotify: true, Fragment: s.fragments.Load(),
	}}})
	return &stream{rpc, s, ctx, cancel}, nil
}

// next receives a message. After a failure there are no more messages.
//
// After a message that is too large, the source's streams request fragments. They do not
// before: the time that etcd needs for fragments is quadratic in the number of events.
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

// waitCreated receives the first message, which confirms that the watch is registered.
func (s *stream) waitCreated() *keepwatch.Failure {
	response, failure := s.next()
	if failure == nil && !response.Created {
		failure = s.source.protocolViolation("a watch begins without its confirmation")
	}
	return failure
}

// sendProgressRequest requests the watch's revision. etcd answers with a message without
// events, or not at all while it has events to send.
func (s *stream) sendProgressRequest() {
	_ = s.rpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{
		ProgressRequest: &pb.WatchProgressRequest{}}})
}

func (s *Source) protocolViolation(message string) *keepwatch.Failure {
	return &keepwatch.Failure{Kind: keepwatch.ProtocolViolation, Err: errors.New("watch " + string(s.prefix) + ": " +
		message)}
}
