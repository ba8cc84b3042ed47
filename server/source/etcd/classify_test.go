package etcd

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keepwatch/keepwatch"
)

func TestKinds(t *testing.T) {
	for _, test := range []struct {
		err  error
		want keepwatch.FailureKind
	}{
		{rpctypes.ErrGRPCCompacted, keepwatch.Expired},
		{rpctypes.ErrGRPCFutureRev, keepwatch.Rewound},
		{rpctypes.ErrGRPCNoLeader, keepwatch.Unreachable},
		{rpctypes.ErrGRPCLeaderChanged, keepwatch.Unreachable},
		{rpctypes.ErrGRPCTimeout, keepwatch.Unreachable},
		{rpctypes.ErrGRPCStopped, keepwatch.Unreachable},
		{rpctypes.ErrGRPCRequestTooManyRequests, keepwatch.Throttled},
		{rpctypes.ErrGRPCUserEmpty, keepwatch.Unauthorized},
		{rpctypes.ErrGRPCAuthFailed, keepwatch.Unauthorized},
		{rpctypes.ErrGRPCInvalidAuthToken, keepwatch.Unauthorized},
		{rpctypes.ErrGRPCAuthOldRevision, keepwatch.Unauthorized},
		{rpctypes.ErrGRPCPermissionDenied, keepwatch.Forbidden},
		{rpctypes.ErrGRPCCorrupt, keepwatch.ServerError},
		{rpctypes.ErrGRPCNotCapable, keepwatch.ServerError},
		{rpctypes.ErrGRPCNotSupportedForLearner, keepwatch.ServerError},
		{rpctypes.ErrGRPCWatchCanceled, keepwatch.Ended},
		{rpctypes.ErrGRPCInvalidClientAPIVersion, keepwatch.Rejected},
		{status.Error(codes.Unimplemented, "unknown service etcdserverpb.Watch"), keepwatch.Rejected},
		{status.Error(codes.Internal, "stream terminated by RST_STREAM"), keepwatch.ServerError},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), keepwatch.Unreachable},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max (2 vs. 1)"), keepwatch.Undecodable},
		{status.Error(codes.Unknown, "the moon is full"), keepwatch.UnknownStatus},
		{errors.New("the moon is full"), keepwatch.UnknownStatus},
	} {
		// As received, as converted by the client, and as the reason of a canceled watch.
		wrapped := rpctypes.Error(test.err)
		if got := kindOf(test.err); got != test.want {
			t.Errorf("%v is %v, want %v", test.err, got, test.want)
		}
		if got := kindOf(wrapped); got != test.want {
			t.Errorf("%v, converted, is %v, want %v", test.err, got, test.want)
		}
		var own rpctypes.EtcdError
		if got := kindOf(cancelReason(test.err.Error())); errors.As(wrapped, &own) && got != test.want {
			t.Errorf("%v as a reason is %v, want %v", test.err, got, test.want)
		}
	}
}

// A request is Ended if its caller cancels it, unless it has a failure already.
func TestContexts(t *testing.T) {
	s := &Source{prefix: "/p/"}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	err := status.FromContextError(context.Canceled).Err()
	if got := s.failure(cancelled, "read", err); got.Kind != keepwatch.Ended || !errors.Is(got, context.Canceled) {
		t.Errorf("a cancelled request is %v: %v", got.Kind, got)
	}
	own := keepwatch.Failed(keepwatch.Rewound, "own")
	if got := s.failure(cancelled, "read", own); got != own {
		t.Errorf("a failure became %v", got)
	}
}
