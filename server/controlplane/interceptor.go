package controlplane

import (
	"context"
	"slices"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// writeInterceptor refuses every request to etcd that may change something, until writes are
// allowed. It is part of the connection, so that no loop, hook or library of this process can
// bypass it.
type writeInterceptor struct{ allowed atomic.Bool }

// readMethods are the requests that change nothing. Watches are streams, which are not intercepted.
var readMethods = []string{
	pb.KV_Range_FullMethodName,
	pb.Cluster_MemberList_FullMethodName,
	pb.Maintenance_Status_FullMethodName,
	pb.Auth_Authenticate_FullMethodName,
}

func (i *writeInterceptor) intercept(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if !i.allowed.Load() && !slices.Contains(readMethods, method) {
		return status.Errorf(codes.PermissionDenied, "%s is refused: %s", method, readOnlyReason)
	}
	return invoke(ctx, method, request, reply, conn, options...)
}
