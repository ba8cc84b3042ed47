package storm

import (
	"testing"

	"github.com/keepwatch/keepwatch/test/follow"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

func TestStreamThroughStorm(t *testing.T) { follow.Storms(t, peer.Kubernetes(t)) }
