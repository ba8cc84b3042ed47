package managed

import (
	"testing"

	"github.com/keepwatch/keepwatch/test/managed"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

func TestOperators(t *testing.T) { managed.Operators(t, peer.Kubernetes(t)) }
