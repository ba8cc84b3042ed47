// Package conformance runs package conformance's tests on a real kube-apiserver, to check
// the tests themselves.
package conformance

import (
	"testing"

	"github.com/keepwatch/keepwatch/test/conformance"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

func TestWatchers(t *testing.T) { conformance.Watchers(t, peer.SharedKubernetes(t)) }

func TestChunking(t *testing.T) { conformance.Chunking(t, peer.Kubernetes(t)) }
