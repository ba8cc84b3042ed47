package embedded

import (
	"testing"

	"github.com/keepwatch/keepwatch/test/managed"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestOperators(t *testing.T) { managed.Operators(t, peer.Serve(t)) }
