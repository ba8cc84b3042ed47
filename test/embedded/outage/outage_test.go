// Package outage kills keepwatch serve under load.
package outage

import (
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
	"github.com/keepwatch/keepwatch/test/rawwatch"
)

func TestMain(m *testing.M) { peer.Main(m) }

// TestKilledUnderLoad kills the server and the etcd within it, again and again.
func TestKilledUnderLoad(t *testing.T) {
	server := peer.Serve(t)
	etcd, err := server.Endpoint().Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	trial := rawwatch.Start(t, server.Config(), etcd)
	for range 4 {
		trial.Written(500)
		server.Kill()
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	trial.Written(500)
	trial.Judge()
}
