package controlplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A file of which most is free is defragmented, but not while etcd is busy.
func TestDefragmentsWhatIsMostlyFree(t *testing.T) {
	b := openTestBackend(t)
	for i := range 8 {
		var puts []clientv3.Op
		for j := range 10 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/large/%d/%d", i, j), strings.Repeat("x", 64<<10)))
		}
		if _, err := b.client.Txn(t.Context()).Then(puts...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	deleted, err := b.client.Delete(t.Context(), "/large/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Compact(t.Context(), deleted.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	s := newSpace(b.client)
	s.minDefrag = 1 << 20
	status := func() *pb.StatusResponse {
		status, err := s.etcd.Status(t.Context(), &pb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	for status().DbSizeInUse > s.minDefrag { // it is up to date at the next commit
		if t.Context().Err() != nil {
			t.Fatal("etcd doesn't compact")
		}
	}
	look := func() {
		if err := s.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before := status().DbSize
	look()
	if after := status().DbSize; after != before {
		t.Errorf("just started, it makes %d bytes of %d", after, before)
	}
	s.busy = time.Now().Add(-2 * quietTime)
	s.minDefrag = 2 * before
	look()
	if after := status().DbSize; after != before {
		t.Errorf("of a small file of %d bytes it makes %d", before, after)
	}
	s.minDefrag = 1 << 20
	look()
	if after := status().DbSize; after > before/2 {
		t.Errorf("of %d bytes it leaves %d", before, after)
	}
}
