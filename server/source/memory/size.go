package memory

import (
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// The bounds of a write: what etcd accepts (its --max-request-bytes), and what etcd's client sends, both by default.
const (
	maxRequestBytes = 3 << 19
	maxSentBytes    = 2 << 20
)

// checkSize returns the error of etcd, or of its client, for a write that is too large. k8s.io/apiserver recognizes
// both: it writes the object again without its managed fields.
func checkSize(key string, value []byte, expected int64, options kubernetes.PutOptions) error {
	if len(value)+4*len(key) < maxRequestBytes/2 {
		return nil // the common case, without the request
	}
	txn := pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
			TargetUnion: &pb.Compare_ModRevision{ModRevision: expected},
		}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
			Key: []byte(key), Value: value, Lease: int64(options.LeaseID),
		}}}},
	}
	if options.GetOnFailure {
		txn.Failure = []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}}
	}
	if sent := proto.Size(&txn); sent > maxSentBytes {
		return status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", sent,
			maxSentBytes)
	}
	// etcd adds a number to the request, whose size depends on its member. This is the largest.
	if proto.Size(&pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: math.MaxUint64}, Txn: &txn}) > maxRequestBytes {
		return rpctypes.ErrRequestTooLarge
	}
	return nil
}
