package etcd

import (
	"context"
	"errors"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/keepwatch/keepwatch"
)

// streamState sends the objects at a position's revision from it on, by the call RangeStream of etcd 3.7.
// etcd sends chunks of about 1.5 MiB, and reads the next one when the connection has room. streamState
// advances the position, and reports whether it has sent everything. Otherwise the member has no such
// call or the stream broke, and pages continue at the position.
func (s *Source) streamState(ctx context.Context, at *position,
	into chan<- keepwatch.Page) (complete bool, _ *keepwatch.Failure) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	idle := time.AfterFunc(s.idleTimeout, cancel)
	defer idle.Stop()
	chunks, err := s.kv.RangeStream(ctx, s.rangeRequest(*at), grpc.MaxCallRecvMsgSize(s.maxMessage),
		grpc.ForceCodecV2(wireCodec))
	if err != nil {
		return false, nil
	}
	for {
		idle.Reset(s.idleTimeout)
		message, err := chunks.Recv()
		idle.Stop() // while the objects are decoded and stored
		if err != nil {
			return complete && errors.Is(err, io.EOF), nil // etcd checks permissions again at the end
		}
		failure := s.sendChunk(message.GetRangeResponse(), at, into)
		if failure != nil {
			return false, failure
		}
		complete = message.GetRangeResponse().GetHeader() != nil // of the last chunk only
	}
}

// sendChunk sends the objects of a chunk, and advances the position.
func (s *Source) sendChunk(chunk *pb.RangeResponse, at *position, into chan<- keepwatch.Page) *keepwatch.Failure {
	if h := chunk.GetHeader(); h != nil {
		if failure := s.checkCluster("list", h, true); failure != nil {
			return failure
		}
	}
	objects, failure := s.decodeAll(chunk.GetKvs())
	if failure != nil {
		return failure
	}
	if n := len(chunk.GetKvs()); n > 0 {
		at.after = s.prefix.key(chunk.Kvs[n-1].Key)
	}
	into <- keepwatch.Page{Revision: at.revision, Objects: objects}
	return nil
}
