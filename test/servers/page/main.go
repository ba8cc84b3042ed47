// Command page makes docs/servers.md of the results in test/servers/results. It runs in the folder test.
package main

import (
	"fmt"
	"os"

	"github.com/keepwatch/keepwatch/test/servers"
)

func main() {
	results, err := servers.LoadResults("servers/results")
	if err == nil {
		err = os.WriteFile("../docs/servers.md", servers.Page(results), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
