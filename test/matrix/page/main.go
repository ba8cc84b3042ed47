// Command page makes docs/matrix.md, and its plots, of the results in test/matrix/results. It runs in
// the folder test.
package main

import (
	"fmt"
	"os"

	"github.com/keepwatch/keepwatch/test/matrix"
)

func main() {
	if err := matrix.WritePage("matrix/results", "../docs"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
