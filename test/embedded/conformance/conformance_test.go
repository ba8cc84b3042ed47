// Package conformance runs package conformance's tests on keepwatch serve.
package conformance

import (
	"testing"

	"github.com/keepwatch/keepwatch/test/conformance"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

func TestWatchers(t *testing.T) { conformance.Watchers(t, peer.SharedServe(t)) }

func TestChunking(t *testing.T) { conformance.Chunking(t, peer.Serve(t)) }
