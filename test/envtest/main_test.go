// Package envtest runs controller-runtime's envtest, unchanged, with the programs that keepwatch assets makes.
//
// # Files
//
//	environment_test.go  an environment's life: definitions, users, kubectl, restart
//	webhooks_test.go     webhooks by URL and by service
//	end_test.go          no process outlives its test
//	assets_test.go       the folder of assets, and the processes of its programs
//
// The results of controller-runtime's own suites are in results; package suites writes them.
package envtest

import (
	"os"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(abandonVariable); dir != "" {
		abandon(dir)
	}
	peer.Main(m)
}
