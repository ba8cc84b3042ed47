package managed

import (
	"testing"

	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/managed"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

func TestOperators(t *testing.T) {
	server := peer.Kubernetes(t)
	if err := load.DefineWidgets(t.Context(), server.Config()); err != nil {
		t.Fatal(err)
	}
	managed.Operators(t, server.Config())
}
