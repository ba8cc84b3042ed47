// Command page writes the table of controller-runtime's tests into docs/testing.md, from the results in
// test/envtest/results. It runs in the folder test.
package main

import (
	"fmt"
	"os"

	"github.com/keepwatch/keepwatch/test/suites"
)

func main() {
	if err := run("../docs/testing.md", "envtest/results"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file, results string) error {
	table, err := suites.EnvtestTable(results)
	if err != nil {
		return err
	}
	document, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := suites.ReplaceTable(string(document), table)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}
