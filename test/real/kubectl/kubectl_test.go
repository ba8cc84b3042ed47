// Package kubectl runs the scripts on kube-apiserver, to check that it behaves as they
// expect of keepwatch serve.
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

func TestScriptsOfRights(t *testing.T) {
	scripts.Run(t, peer.SharedKubernetes(t), "../../scripts/testdata/rbac", false)
}
