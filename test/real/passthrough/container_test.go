package passthrough

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// mainProcess repeats the lines that it reads, and ends after one.
const mainProcess = `echo started; while read -r line; do [ "$line" = quit ] && exit; echo "heard $line"; done`

// container is a directory in which commands run, and a main process.
type container struct {
	dir    string
	ports  map[int32]string // the address behind a port
	output *output          // of the main process
	stdin  io.WriteCloser   // of the main process

	mu   sync.Mutex
	open int // commands that run, and forwarded connections
}

func newContainer(tb testing.TB, ports map[int32]string) *container {
	tb.Helper()
	c := &container{dir: tb.TempDir(), ports: ports, output: newOutput()}
	process := exec.CommandContext(tb.Context(), "sh", "-c", mainProcess)
	process.Dir, process.Stdout, process.Stderr = c.dir, c.output, c.output
	var err error
	if c.stdin, err = process.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := process.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer c.output.end()
		_ = process.Wait()
	}()
	tb.Cleanup(func() { <-ended })
	return c
}

func (c *container) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
}

func (c *container) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

// busy returns how many commands run, and connections are forwarded.
func (c *container) busy() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// exec runs a command until it or the context ends. Its error has the exit code.
func (c *container) exec(ctx context.Context, command []string, in io.Reader, out, errors io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize) error {
	c.begin()
	defer c.end()
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.Dir = c.dir
	if tty {
		return inTerminal(process, in, out, resize)
	}
	if out != nil {
		process.Stdout = out
	}
	if errors != nil {
		process.Stderr = errors
	}
	if in != nil {
		stdin, err := process.StdinPipe() // with Stdin, Wait would wait for the client to close it
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(stdin, in)
			stdin.Close()
		}()
	}
	return exitError(process.Run())
}

// inTerminal runs a command in a terminal. When the input ends, the terminal hangs up.
func inTerminal(process *exec.Cmd, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	terminal, err := pty.Start(process)
	if err != nil {
		return err
	}
	hangUp := sync.OnceFunc(func() { terminal.Close() })
	defer hangUp()
	go func() {
		for size := range resize {
			_ = setSize(terminal, size.Height, size.Width)
		}
	}()
	if in != nil {
		go func() {
			_, _ = io.Copy(terminal, in)
			hangUp()
		}()
	}
	_, _ = io.Copy(out, terminal) // until no process has the terminal
	return exitError(process.Wait())
}

// setSize changes the size of a terminal that is in use: pty.Setsize would make its reads block beyond Close.
func setSize(terminal *os.File, rows, columns uint16) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
	return errors.Join(err, set)
}

// exitError returns the error of a process as the streaming server recognizes it.
func exitError(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

// output is what a process has written.
type output struct {
	mu      sync.Mutex
	text    []byte
	ended   bool
	changed chan struct{} // closed at the next change
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, text...)
	o.broadcast()
	return len(text), nil
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.broadcast()
}

func (o *output) broadcast() {
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *output) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.text)
}

// wait waits until the output from an offset on contains a text, and returns it.
func (o *output) wait(tb testing.TB, from int, text string) (all string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	found := errors.New("found")
	err := o.copy(ctx, from, true, func(more []byte) error {
		if all += string(more); strings.Contains(all, text) {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		tb.Fatalf("%q does not come: %v\n%s", text, err, all)
	}
	return all
}

// copy writes the output from an offset on: what there is, or, to follow it, until the process or the context ends.
func (o *output) copy(ctx context.Context, from int, follow bool, write func([]byte) error) error {
	for {
		o.mu.Lock()
		text, ended, changed := bytes.Clone(o.text[from:]), o.ended, o.changed
		o.mu.Unlock()
		if from += len(text); len(text) > 0 {
			if err := write(text); err != nil {
				return err
			}
		}
		if ended || !follow {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
