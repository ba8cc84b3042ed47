package embeddedetcd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// After everything was deleted at once the alarm ends, although nothing is written any more: etcd reports
// the space that the compaction freed only after another write.
func TestAlarmEndsWithoutFurtherWrites(t *testing.T) {
	client := newTestClient(t, 4<<20)
	for i := 0; ; i++ {
		_, err := client.Put(t.Context(), fmt.Sprintf("/large/%d", i), strings.Repeat("x", 64<<10))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := newSpaceMonitor(client)
	check := func() {
		t.Helper()
		if err := s.check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // as a server that is full for a while
		check()
	}
	if _, err := client.Delete(t.Context(), "/large/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the alarm ends", func() bool {
		check()
		return !s.full
	})
}
