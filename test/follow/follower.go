// Package follow runs keepwatch watch as its users do: as a process whose stdout
// is read by somebody else, which may be killed at any moment and started again.
package follow

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/test/ndjson"
	"github.com/keepwatch/keepwatch/test/peer"
)

// Follower is one keepwatch watch through all of its lives.
type Follower struct {
	// Selected says that the stream has a selector.
	Selected bool

	tb     testing.TB
	path   string
	args   []string
	dir    string
	lives  int
	now    *peer.Process
	output []string // a file a life
}

// New prepares `keepwatch watch ARGS…`. It is ended with the test.
func New(tb testing.TB, args ...string) *Follower {
	tb.Helper()
	f := &Follower{tb: tb, path: peer.Keepwatch(tb), args: append([]string{"watch"}, args...), dir: tb.TempDir()}
	tb.Cleanup(func() {
		if f.now != nil {
			f.now.Kill()
		}
		if tb.Failed() {
			tb.Logf("stderr of keepwatch %v:\n%s", f.args, f.Stderr())
		}
	})
	return f
}

// Start begins a life.
func (f *Follower) Start() {
	f.tb.Helper()
	f.lives++
	name := filepath.Join(f.dir, fmt.Sprintf("stdout-%03d", f.lives))
	out, err := os.Create(name)
	if err != nil {
		f.tb.Fatal(err)
	}
	defer out.Close() // the process has its own descriptor
	f.now, err = peer.Start(peer.Command{Path: f.path, Args: f.args, Log: f.stderr(), Stdout: out})
	if err != nil {
		f.tb.Fatal(err)
	}
	f.output = append(f.output, name)
}

// Kill ends the life with SIGKILL.
func (f *Follower) Kill() { f.now.Kill() }

// Process is the life of now.
func (f *Follower) Process() *peer.Process { return f.now }

// End asks the process to end and returns its exit code.
func (f *Follower) End(grace time.Duration) (int, error) {
	if err := f.now.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-f.now.Done():
		return f.now.ExitCode(), nil
	case <-time.After(grace):
		f.now.Kill()
		return 0, fmt.Errorf("did not end within %v of SIGTERM", grace)
	}
}

// Fold reads everything that all lives have written so far.
func (f *Follower) Fold() (*ndjson.Fold, error) {
	fold := ndjson.NewFold()
	fold.Selected = f.Selected
	for _, name := range f.output {
		in, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = fold.Read(in)
		in.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
	}
	return fold, nil
}

// Stderr is what all lives have said to people.
func (f *Follower) Stderr() string {
	text, err := os.ReadFile(f.stderr())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (f *Follower) stderr() string { return filepath.Join(f.dir, "stderr") }
