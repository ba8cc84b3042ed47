// Package follow runs keepwatch watch as a process whose stdout is a file, and kills and
// starts it again at any time.
package follow

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/ndjson"
	"github.com/keepwatch/keepwatch/test/peer"
)

// Follower is one keepwatch watch with all its processes, one after the other.
type Follower struct {
	// Selected is true for a stream with a selector.
	Selected bool

	tb      testing.TB
	path    string
	args    []string
	dir     string
	runs    int
	process *peer.Process // of the current run
	output  []string      // a file for each run
}

// New prepares `keepwatch watch ARGS…`. The process ends with the test.
func New(tb testing.TB, args ...string) *Follower {
	tb.Helper()
	f := &Follower{tb: tb, path: peer.Keepwatch(tb), args: append([]string{"watch"}, args...), dir: tb.TempDir()}
	tb.Cleanup(func() {
		if f.process != nil {
			f.process.Kill()
		}
		if tb.Failed() {
			tb.Logf("stderr of keepwatch %v:\n%s", f.args, f.Stderr())
		}
	})
	return f
}

// Start starts a process.
func (f *Follower) Start() {
	f.tb.Helper()
	f.runs++
	name := filepath.Join(f.dir, fmt.Sprintf("stdout-%03d", f.runs))
	out, err := os.Create(name)
	if err != nil {
		f.tb.Fatal(err)
	}
	defer out.Close() // the process has its own descriptor
	f.process, err = peer.Start(peer.Command{Path: f.path, Args: f.args, Log: f.stderr(), Stdout: out})
	if err != nil {
		f.tb.Fatal(err)
	}
	f.output = append(f.output, name)
}

// Kill ends the process with SIGKILL.
func (f *Follower) Kill() { f.process.Kill() }

// Process returns the current process.
func (f *Follower) Process() *peer.Process { return f.process }

// End sends SIGTERM to the process and returns its exit code.
func (f *Follower) End() (int, error) {
	if err := f.process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-f.process.Done():
		return f.process.ExitCode(), nil
	case <-time.After(await.Deadline):
		f.process.Kill()
		return 0, fmt.Errorf("did not end within %v of SIGTERM", await.Deadline)
	}
}

// Fold folds the output of all processes so far.
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

// Stderr returns the stderr of all processes.
func (f *Follower) Stderr() string {
	text, err := os.ReadFile(f.stderr())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (f *Follower) stderr() string { return filepath.Join(f.dir, "stderr") }
