package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
)

// stage runs programs in a folder until its context ends. After the first error it does nothing more.
type stage struct {
	ctx     context.Context
	dir     string
	err     error
	running sync.WaitGroup
}

func (s *stage) do(step func() error) {
	if s.err == nil {
		s.err = step()
	}
}

func (s *stage) command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.ctx, program, args...)
	cmd.Dir, cmd.Env = s.dir, []string{"HOME=" + s.dir, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// run runs a program to its end.
func (s *stage) run(program string, args ...string) {
	s.do(func() error {
		if out, err := s.command(program, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", program, err, out)
		}
		return nil
	})
}

// start starts a program, waits until its output matches a pattern, and returns the pattern's group.
func (s *stage) start(pattern, program string, args ...string) (group string) {
	s.do(func() error {
		found := make(chan string, 1)
		o := &output{pattern: regexp.MustCompile(pattern), found: found}
		cmd, ended := s.command(program, args...), make(chan error, 1)
		cmd.Stdout, cmd.Stderr = o, o
		if err := cmd.Start(); err != nil {
			return err
		}
		s.running.Go(func() { ended <- cmd.Wait() })
		select {
		case group = <-found:
			return nil
		case err := <-ended:
			return fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), args[0], err, o.text.Bytes())
		}
	})
	return group
}

// wait waits for the end of all programs.
func (s *stage) wait() { s.running.Wait() }

// output is what a program prints until it matches a pattern. Write sends the last group of the match, or all of it
// without groups.
type output struct {
	pattern *regexp.Regexp
	text    bytes.Buffer
	found   chan<- string // nil after the match
}

func (o *output) Write(p []byte) (int, error) {
	if o.found == nil {
		return len(p), nil
	}
	o.text.Write(p)
	if match := o.pattern.FindSubmatch(o.text.Bytes()); match != nil {
		o.found <- string(match[len(match)-1])
		o.found = nil
	}
	return len(p), nil
}
