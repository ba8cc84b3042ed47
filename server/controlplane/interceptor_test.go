package controlplane

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The connection to a foreign etcd refuses all writes.
func TestInterceptorRefusesWrites(t *testing.T) {
	t.Parallel()
	b := openTestBackend(t).etcd()
	b.writes.allowed.Store(false)
	for name, write := range map[string]func() error{
		"put":     func() error { _, err := b.client.Put(t.Context(), "a", "b"); return err },
		"delete":  func() error { _, err := b.client.Delete(t.Context(), "a"); return err },
		"txn":     func() error { _, err := b.client.Txn(t.Context()).Then(clientv3.OpPut("a", "b")).Commit(); return err },
		"compact": func() error { _, err := b.client.Compact(t.Context(), 1); return err },
		"lease":   func() error { _, err := b.client.Grant(t.Context(), 60); return err },
		"defragment": func() error {
			_, err := b.client.Defragment(t.Context(), b.client.Endpoints()[0])
			return err
		},
	} {
		if err := write(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.client.Get(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}
