// Package child runs the process of a server for a test: it can be killed, and it ends with the process that started
// it.
//
//	child.go                    the process
//	death_linux.go, death_other.go   its end with its parent
//	address.go                  an address on which it can listen
package child

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// Process is a running server. Its methods are safe for concurrent use.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed after the process has been waited for
	err  error         // of Wait; read it after done
}

// Start starts a command whose output is appended to the file log, except stdout if cmd.Stdout is set. The kernel kills
// the process if this one ends first (on Linux).
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own descriptor
	if cmd.Stderr = out; cmd.Stdout == nil {
		cmd.Stdout = out
	}
	dieWithParent(cmd)
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The parent death signal is bound to the thread that forked, so that thread must exist as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits for the end of the process, and returns how it ended.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Kill ends the process with SIGKILL, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// logEnd is how much of a log is shown.
const logEnd = 4000

// ShowLog logs the end of a file if the test has failed.
func ShowLog(tb testing.TB, server, file string) {
	tb.Helper()
	if !tb.Failed() {
		return
	}
	log, err := os.ReadFile(file)
	if err != nil {
		tb.Logf("the log of %s: %v", server, err)
		return
	}
	tb.Logf("the log of %s ends:\n%s", server, log[max(0, len(log)-logEnd):])
}
