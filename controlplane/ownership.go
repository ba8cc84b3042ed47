package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ownerKey marks an etcd as this server's own. Its value is random, and made once: it names the
// history that began with it.
const ownerKey = "/keepwatch/owner"

// kineKeys are in a new kine before anybody has written to it.
var kineKeys = []string{"compact_rev_key", "compact_rev_key_apiserver", "/registry/health"}

// claim finds out whether the etcd is this server's own, and marks it if it is not marked yet: an etcd
// that holds nothing is, and any etcd is where own says so. Another one is left as it is.
func (b *backend) claim(ctx context.Context, own bool) error {
	marked, err := b.client.Get(ctx, ownerKey)
	if errors.Is(err, rpctypes.ErrPermissionDenied) && !own {
		b.foreign = ownerKey // who may not look is no owner
		return nil
	}
	if err != nil {
		return err
	}
	if len(marked.Kvs) == 0 && !own {
		if b.foreign, err = foreignKey(ctx, b.client); err != nil || b.foreign != "" {
			return err
		}
	}
	b.guard.open.Store(true)
	if len(marked.Kvs) > 0 {
		return nil
	}
	_, err = b.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(ownerKey), "=", 0)).
		Then(clientv3.OpPut(ownerKey, rand.Text())).
		Commit()
	if own && errors.Is(err, rpctypes.ErrNoSpace) {
		return nil // the next start marks it
	}
	return err
}

// foreignKey returns a key that an etcd without a mark holds; empty if it holds nothing.
func foreignKey(ctx context.Context, client *clientv3.Client) (string, error) {
	all, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(int64(len(kineKeys)+1)))
	if err != nil {
		return "", err
	}
	for _, kv := range all.Kvs {
		if !slices.Contains(kineKeys, string(kv.Key)) {
			return string(kv.Key), nil
		}
	}
	return "", nil
}

// readOnly reports whether the etcd is somebody else's.
func (b *backend) readOnly() bool { return b.foreign != "" }

// guard refuses every request to etcd that is not known to change nothing, until it is opened. It sits
// in the connection, so that no loop, hook or library of this process can write past it.
type guard struct{ open atomic.Bool }

// reads are the requests that change nothing. Watches are streams, which are not guarded.
var reads = []string{
	pb.KV_Range_FullMethodName,
	pb.Cluster_MemberList_FullMethodName,
	pb.Maintenance_Status_FullMethodName,
	pb.Auth_Authenticate_FullMethodName,
}

func (g *guard) intercept(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if !g.open.Load() && !slices.Contains(reads, method) {
		return status.Errorf(codes.PermissionDenied, "%s is refused: %s", method, readOnlyReason)
	}
	return invoke(ctx, method, request, reply, conn, options...)
}
