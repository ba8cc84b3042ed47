package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// shell runs the commands of the story and prints them with their output. After the first error it does nothing more.
type shell struct {
	ctx     context.Context
	dir     string
	err     error
	running []*process
}

func (s *shell) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *shell) say(format string, args ...any) {
	if s.err == nil {
		fmt.Printf("\n"+format+"\n\n", args...)
	}
}

// process is a command in the background. A nil one is of a shell that has failed.
type process struct {
	s      *shell
	line   string
	cmd    *exec.Cmd
	output *output
	ended  chan struct{}
	err    error // once ended is closed
}

// start starts a command in the background.
func (s *shell) start(format string, args ...any) *process {
	line := fmt.Sprintf(format, args...)
	if s.err == nil {
		fmt.Printf("$ %s &\n", line)
	}
	return s.launch(line)
}

// run runs a command to its end.
func (s *shell) run(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if s.err == nil {
		fmt.Printf("$ %s\n", line)
	}
	p := s.launch(line)
	if p == nil {
		return
	}
	select {
	case <-p.ended:
		if p.err != nil {
			s.fail("%s: %w\n%s", line, p.err, p.output.text())
		}
	case <-time.After(stepTimeout):
		s.fail("%s has not ended after %v:\n%s", line, stepTimeout, p.output.text())
	case <-s.ctx.Done():
		s.fail("%w", context.Cause(s.ctx))
	}
}

// launch starts a line of the story, of which the first word is one of our programs.
func (s *shell) launch(line string) *process {
	if s.err != nil {
		return nil
	}
	p := &process{s: s, line: line, output: &output{changed: make(chan struct{})}, ended: make(chan struct{})}
	p.cmd = exec.Command("sh", "-c", "exec ./"+line)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = s.dir, p.output, p.output
	p.cmd.Env = []string{"KUBECONFIG=" + filepath.Join(s.dir, "kubeconfig"), "HOME=" + s.dir, "PATH=" + os.Getenv("PATH")}
	if err := p.cmd.Start(); err != nil {
		s.fail("%s: %w", line, err)
		return nil
	}
	s.running = append(s.running, p)
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p
}

// waitFor waits until the output of p matches a pattern, and returns the pattern's group.
func (p *process) waitFor(pattern string) string {
	if p == nil {
		return ""
	}
	expression := regexp.MustCompile(pattern)
	for timeout := time.After(stepTimeout); ; {
		text, changed := p.output.state()
		if found := expression.FindStringSubmatch(text); found != nil {
			return found[1]
		}
		select {
		case <-changed:
		case <-p.ended:
			p.s.fail("%s ended: %v\n%s", p.line, p.err, p.output.text())
			return ""
		case <-timeout:
			p.s.fail("%s printed nothing like %q within %v:\n%s", p.line, pattern, stepTimeout, text)
			return ""
		case <-p.s.ctx.Done():
			p.s.fail("%w", context.Cause(p.s.ctx))
			return ""
		}
	}
}

// kill kills a process as a crash would.
func (s *shell) kill(p *process) {
	if s.err != nil {
		return
	}
	words := strings.Fields(p.line)
	fmt.Printf("$ kill -9 %d    # %s %s\n", p.cmd.Process.Pid, words[0], words[1])
	s.end(p)
}

func (s *shell) end(p *process) {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.fail("kill %s: %w", p.line, err)
	}
	<-p.ended
}

func (s *shell) killAll() {
	for _, p := range s.running {
		s.end(p)
	}
}

// output is what a process has printed. Whole lines are also printed here, shortened.
type output struct {
	mutex   sync.Mutex
	all     bytes.Buffer
	printed int           // bytes of all
	changed chan struct{} // closed at the next write
}

func (o *output) Write(text []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.all.Write(text)
	for {
		line, _, whole := bytes.Cut(o.all.Bytes()[o.printed:], []byte("\n"))
		if !whole {
			break
		}
		fmt.Println(shorten(string(line)))
		o.printed += len(line) + 1
	}
	close(o.changed)
	o.changed = make(chan struct{})
	return len(text), nil
}

func (o *output) state() (text string, changed <-chan struct{}) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.all.String(), o.changed
}

func (o *output) text() string {
	text, _ := o.state()
	return text
}

// omitted matches what shorten leaves out of a line of the stream: the id, and of the object all but its name and data.
var omitted = regexp.MustCompile(
	`"(id|resource|kind|apiVersion)":"[^"]*",|,"namespace":.*?"creationTimestamp":"[^"]*"(,"managedFields":\[.*?\}\}\}?\])?`)

// shorten makes a line fit a terminal.
func shorten(line string) string {
	if !strings.HasPrefix(line, `{"type":`) {
		return line
	}
	return strings.ReplaceAll(omitted.ReplaceAllString(line, "…"), "……", "…")
}
