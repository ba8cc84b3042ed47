//go:build unix

package judges

import (
	"bufio"
	"context"
	"io"
	"os"
	"testing"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// An interrupted disturbance leaves no process behind, whether or not that ends when it is asked to.
func TestInterruptedDisturbance(t *testing.T) {
	for _, child := range []string{"sleep 4242", "(trap '' TERM; exec sleep 4242)"} {
		ctx, interrupt := context.WithCancel(t.Context())
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		ended := make(chan error, 1)
		go func() { ended <- disturbance(child+" & echo begun; wait", writer)(ctx) }()
		output := bufio.NewReader(reader)
		if _, err := output.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		interrupt()
		if err := await.Receive(t, "the disturbance ends", ended); err == nil {
			t.Error("no error")
		}
		writer.Close() // what it has started has it still
		closed := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, output)
			closed <- err
		}()
		if err := await.Receive(t, "all its processes have ended", closed); err != nil {
			t.Error(err)
		}
	}
}
