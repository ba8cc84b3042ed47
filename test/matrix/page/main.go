// Command page makes docs/matrix.md, and its figures, of the results in test/matrix/results, and the table in
// docs/proxy.md of those in test/matrix/losthistory. It runs in the folder test.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/keepwatch/keepwatch/test/matrix"
)

func main() {
	if err := errors.Join(
		matrix.WritePage("matrix/results", "../docs"),
		matrix.WriteLostHistory("matrix/losthistory", "../docs/proxy.md"),
	); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
