package embeddedetcd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
)

// newTestClient returns a client of an etcd of its own.
func newTestClient(t *testing.T, quota int64) *clientv3.Client {
	t.Helper()
	data, err := datadir.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { data.Close() })
	server, err := Start(t.Context(), data, quota)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// A file of which most is free is defragmented, except while etcd is busy.
func TestDefragmentsMostlyFreeFile(t *testing.T) {
	client := newTestClient(t, 1<<30)
	for i := range 8 {
		var puts []clientv3.Op
		for j := range 10 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/large/%d/%d", i, j), strings.Repeat("x", 64<<10)))
		}
		if _, err := client.Txn(t.Context()).Then(puts...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	deleted, err := client.Delete(t.Context(), "/large/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), deleted.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	s := newSpaceMonitor(client)
	s.minDefrag = 1 << 20
	status := func() *pb.StatusResponse {
		status, err := s.maintenance.Status(t.Context(), &pb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	await.State(t, "etcd has compacted", func() (bool, string) {
		// It reports the new size after its next commit.
		if _, err := client.Put(t.Context(), "any", ""); err != nil {
			t.Fatal(err)
		}
		inUse := status().DbSizeInUse
		return inUse <= s.minDefrag, fmt.Sprint(inUse)
	})
	check := func() {
		if err := s.check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before := status().DbSize
	s.busy = time.Now() // as at the start
	check()
	if after := status().DbSize; after != before {
		t.Errorf("just after the start, a file of %d bytes was defragmented to %d", before, after)
	}
	s.busy = time.Now().Add(-2 * quietTime)
	s.minDefrag = 2 * before
	check()
	if after := status().DbSize; after != before {
		t.Errorf("a small file of %d bytes was defragmented to %d", before, after)
	}
	s.minDefrag = 1 << 20
	check()
	if after := status().DbSize; after > before/2 {
		t.Errorf("a file of %d bytes was defragmented to %d only", before, after)
	}
}
