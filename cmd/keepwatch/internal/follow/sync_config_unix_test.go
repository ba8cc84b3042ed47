//go:build unix

package follow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A command that reads a file without an end, such as a terminal, ends when it is asked to.
func TestEndWhileAFileIsRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	asked := errors.New("asked to end")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(asked)
	if _, err := (&syncOptions{file: name}).complete(ctx, nil); !errors.Is(err, asked) {
		t.Error(err)
	}
}
