// Command page writes the table of docs/judged.md from test/published/results. It runs in the folder test.
package main

import (
	"fmt"
	"os"

	"github.com/keepwatch/keepwatch/test/published"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write() error {
	const page = "../docs/judged.md"
	results, err := published.LoadResults("published/results")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	updated, err := published.Write(string(text), results)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(updated), 0o644)
}
