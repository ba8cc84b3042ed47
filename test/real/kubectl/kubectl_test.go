// Package kubectl tests that what the scripts expect of keepwatch serve is what
// kube-apiserver does.
package kubectl

import (
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
	"github.com/keepwatch/keepwatch/test/scripts"
)

func TestMain(m *testing.M) { peer.Main(m) }

func TestScripts(t *testing.T) {
	scripts.Run(t, peer.SharedKubernetes(t), "../../scripts/testdata", false)
}
