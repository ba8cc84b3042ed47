// Package kubectl tests that kubectl works against keepwatch serve.
package kubectl

import (
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
	"github.com/keepwatch/keepwatch/test/scripts"
)

func TestMain(m *testing.M) { peer.Main(m) }

func TestScripts(t *testing.T) {
	scripts.Run(t, peer.SharedServe(t), "../../scripts/testdata", true)
}

func TestScriptsOfRights(t *testing.T) {
	scripts.Run(t, peer.Serve(t, "--authorization-mode", "RBAC"), "../../scripts/testdata/rbac", true)
}
