package bench

import (
	"os"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestHold(t *testing.T) {
	s := peer.Kubernetes(t)
	began := time.Now()
	if err := load.Fleet(t.Context(), s.Config(), fleet); err != nil {
		t.Fatal(err)
	}
	os.WriteFile("/tmp/fleet.txt", []byte(s.Kubeconfig()+"\n"+time.Since(began).String()+"\n"), 0o644)
	for {
		if _, err := os.Stat("/tmp/fleet.stop"); err == nil {
			return
		}
		time.Sleep(time.Second)
	}
}
