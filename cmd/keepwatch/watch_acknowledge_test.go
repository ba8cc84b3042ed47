package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// consumer reads lines of a keepwatch watch --acknowledge, and acknowledges them.
type consumer struct {
	*process
	t     *testing.T
	lines chan string
	stdin io.WriteCloser
	ids   []string // of the lines that were read
}

func startConsumer(t *testing.T, args ...string) *consumer {
	t.Helper()
	p := newProcess(t, append([]string{self(t), "watch", "--acknowledge"}, args...))
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout = w
	p.start(t)
	w.Close()
	c := &consumer{process: p, t: t, lines: make(chan string), stdin: stdin}
	done := make(chan struct{})
	go func() {
		defer close(c.lines)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			select {
			case c.lines <- lines.Text():
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		close(done)
		for range c.lines {
		}
		r.Close()
	})
	return c
}

// next returns the next line, as type and name.
func (c *consumer) next() string {
	c.t.Helper()
	select {
	case text := <-c.lines:
		var line struct {
			Type, ID string
			Object   struct{ Metadata struct{ Name string } }
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			c.t.Fatalf("%q: %v; stderr %s", text, err, c.stderr)
		}
		c.ids = append(c.ids, line.ID)
		return strings.TrimSpace(line.Type + " " + line.Object.Metadata.Name)
	case <-time.After(await.Deadline):
		c.t.Fatalf("no line comes; stderr %s", c.stderr)
	}
	return ""
}

// reads checks the next lines.
func (c *consumer) reads(want ...string) {
	c.t.Helper()
	for _, line := range want {
		if got := c.next(); got != line {
			c.t.Fatalf("got %q, want %q; stderr %s", got, line, c.stderr)
		}
	}
}

func (c *consumer) acknowledge(n int) {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, strings.Repeat("\n", n)); err != nil {
		c.t.Fatal(err)
	}
}

// handles checks the next lines, and acknowledges them one by one.
func (c *consumer) handles(want ...string) {
	c.t.Helper()
	for _, line := range want {
		c.reads(line)
		c.acknowledge(1)
	}
}

// close closes stdin, and waits for the end.
func (c *consumer) close() {
	c.t.Helper()
	c.stdin.Close()
	if code := c.exit(c.t); code != 0 || c.stderr.String() != "" {
		c.t.Errorf("exit %d, stderr %q", code, c.stderr)
	}
}

// TestWatchAcknowledge ends a stream in all ways. What was not acknowledged comes again, with its ids; what was, does
// not.
func TestWatchAcknowledge(t *testing.T) {
	parallel(t)
	client, _ := newCluster(t)
	for name, types := range map[string]string{"one type": "cm", "two types": "configmaps,pods"} {
		t.Run(name, func(t *testing.T) {
			args := []string{types, "-l", "app=acknowledged", "--state", t.TempDir() + "/state", "--chunk-size=1"}
			one, two := "one-"+name[:3], "two-"+name[:3]
			configMap(t, client, one, "acknowledged")
			c := startConsumer(t, args...)
			c.reads("ADDED " + one)
			c.Process.Kill()
			c.exit(t)

			first := c.ids[0]
			c = startConsumer(t, args...)
			c.reads("ADDED " + one)
			if c.ids[0] != first {
				t.Errorf("the repetition of %s is %s", first, c.ids[0])
			}
			c.acknowledge(1)
			c.handles("SYNCED")
			configMap(t, client, two, "acknowledged")
			c.reads("ADDED " + two)
			c.close()

			c = startConsumer(t, args...)
			c.handles("ADDED "+two, "SYNCED")
			deleteConfigMap(t, client, two)
			c.reads("DELETED " + two)
			c.Process.Signal(syscall.SIGTERM)
			if code := c.exit(t); code != 0 || c.stderr.String() != "" {
				t.Errorf("after SIGTERM: exit %d, stderr %q", code, c.stderr)
			}

			deleteConfigMap(t, client, one)
			c = startConsumer(t, args...)
			c.handles("DELETED "+two, "DELETED "+one, "SYNCED")
			c.close()

			c = startConsumer(t, append(slices.Clone(args), "--until-synced")...)
			c.handles("SYNCED")
			if code := c.exit(t); code != 0 {
				t.Errorf("exit %d: %s", code, c.stderr)
			}
		})
	}
	t.Run("too many", func(t *testing.T) {
		c := startConsumer(t, "cm", "-l", "app=none")
		c.reads("SYNCED")
		c.acknowledge(2)
		if code := c.exit(t); code != 1 || !strings.Contains(c.stderr.String(), "acknowledges more lines than were printed") {
			t.Errorf("exit %d: %s", code, c.stderr)
		}
	})
}

// A consumer that ends while the server cannot be reached ends the stream.
func TestWatchAcknowledgeUnreachable(t *testing.T) {
	parallel(t)
	setenv(t, "KUBECACHEDIR="+t.TempDir())
	c := startConsumer(t, "cm", "-s", "http://127.0.0.1:1")
	c.waitStderr(t, "retrying in")
	c.stdin.Close()
	if code := c.exit(t); code != 0 {
		t.Errorf("exit %d: %s", code, c.stderr)
	}
}
