package controlplane_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// listening returns the sockets of this process that listen on TCP ports.
func listening(t *testing.T) (sockets []string) {
	t.Helper()
	own := map[string]bool{}
	for _, d := range must(os.ReadDir("/proc/self/fd"))(t) {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", d.Name())); err == nil { // the one of ReadDir is gone
			own[target] = true
		}
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		for line := range strings.Lines(string(must(os.ReadFile(table))(t))) {
			const listens = "0A" // the state
			if socket := strings.Fields(line); socket[3] == listens && own["socket:["+socket[9]+"]"] {
				sockets = append(sockets, socket[1]+" "+socket[9])
			}
		}
	}
	return sockets
}

// The server listens on no other port than that of the API.
func TestNoOtherPort(t *testing.T) { // no t.Parallel: it counts the sockets of the process
	before := listening(t)
	for _, server := range start(t, controlplane.Options{TemporaryEtcd: true}).EtcdCluster().Servers {
		if !strings.HasPrefix(server, "unix:") {
			t.Errorf("etcd listens on %s", server)
		}
	}
	now := slices.DeleteFunc(listening(t), func(socket string) bool { return slices.Contains(before, socket) })
	if len(now) != 1 {
		t.Errorf("the process listens on %s", fmt.Sprint(now))
	}
}
