package stream_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/keepwatch/keepwatch/stream"
)

// A state is readable by its owner alone, also if a file that others can read is where it is made.
func TestStateIsPrivate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stream.db")
	if err := errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Chmod(path+".new", 0o644)); err != nil {
		t.Fatal(err)
	}
	state, err := stream.Open(dir, stream.Identity{Resource: "pods"})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
	if about, err := os.Stat(path); err != nil || about.Mode() != 0o600 {
		t.Errorf("the state is %v, %v", about.Mode(), err)
	}
}
