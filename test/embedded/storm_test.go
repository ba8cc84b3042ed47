package embedded

import (
	"math/rand/v2"
	"testing"

	"github.com/keepwatch/keepwatch/test/follow"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// TestStreamThroughStorm follows 5,000 pods and 5,000 custom resources.
func TestStreamThroughStorm(t *testing.T) {
	server := peer.Serve(t)
	if err := load.DefineWidgets(t.Context(), server.Config()); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	for _, storm := range []follow.Storm{
		{Resource: load.Pods, Type: "pods", Make: load.SmallPod},
		{Resource: load.Widgets, Type: "widgets", Make: load.Widget, HTTP1: true},
	} {
		t.Run(storm.Type, func(t *testing.T) {
			storm.Namespace, storm.Objects, storm.Operations, storm.Seed = "default", 5000, 10_000, seed
			storm.Run(t, server)
		})
	}
}
