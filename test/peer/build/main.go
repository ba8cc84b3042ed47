// Command build builds the programs of other projects that the tests run, so that no test
// waits for that, and prints their paths.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/keepwatch/keepwatch/test/peer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, b := range peer.Binaries {
		start := time.Now()
		path, err := b.Path(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Printf("%s (%s)\n", path, time.Since(start).Round(10*time.Millisecond))
	}
}
