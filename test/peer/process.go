package peer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/child"
)

// Command describes how to start a process.
type Command struct {
	Path string
	Args []string
	Env  []string // in addition to this process's environment
	// Log is the file that gets stderr, and stdout too unless Stdout is set.
	// It is appended to.
	Log string
	// Stdin, if set, is stdin, as it is.
	Stdin *os.File
	// Stdout, if set, gets stdout. A file is handed to the process as it is;
	// anything else is copied to by a goroutine that ends with the process.
	Stdout io.Writer
}

// Process is a running program and the processes it starts, in a process group
// of its own. It is safe for concurrent use.
type Process struct {
	*child.Process
	cmd *exec.Cmd
	log string
}

// Start starts c. The caller ends it with Stop or Kill; if this process dies
// first, the kernel kills it (on Linux).
func Start(c Command) (*Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout = c.Stdout
	if c.Stdin != nil {
		cmd.Stdin = c.Stdin
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started, err := child.Start(cmd, c.Log)
	if err != nil {
		return nil, err
	}
	return &Process{started, cmd, c.Log}, nil
}

// ExitCode waits for the process to end and returns its exit code, or -1 if a
// signal ended it.
func (p *Process) ExitCode() int {
	<-p.Done()
	return p.cmd.ProcessState.ExitCode()
}

// CPU waits for the process to end and returns the processor time it and the
// children it waited for used.
func (p *Process) CPU() time.Duration {
	<-p.Done()
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// tick is the unit of /proc/PID/stat, USER_HZ, which is the same on all of Linux's
// platforms that Go runs on.
const tick = time.Second / 100

// ProcessorTime returns the processor time of the process until now, in user mode and in the kernel. It reads /proc, so
// it works on Linux.
func (p *Process) ProcessorTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may have spaces. The state after it is field 3; utime and
	// stime are 14 and 15.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("unexpected /proc/%d/stat: %q", p.PID(), text)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("unexpected /proc/%d/stat: %q", p.PID(), text)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// Signal sends sig to the process alone. It is no error if it has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Stop sends SIGTERM to the process and waits for its end. If that takes longer than
// grace, Stop kills it and returns an error. The exit code is not an error.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.Done():
		return nil
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM and was killed; its log is %s", p.cmd.Path, grace, p.log)
	}
}

// Kill ends the process and all it started with SIGKILL, and waits for that.
func (p *Process) Kill() {
	select {
	case <-p.Done(): // its id may be another's by now
	default:
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
		<-p.Done()
	}
}
