package passthrough

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sync/errgroup"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

var size = flag.Int("passthrough.bytes", 4<<20, "how many bytes to send through each stream")

// streams are conversations of kubectl with the container of a pod. Each has a pod of its own.
var streams = []struct {
	name string
	talk func(s *session, pod string, c *container)
}{
	{"exec", talkExec}, {"terminal", talkTerminal}, {"cp", talkCopy}, {"attach", talkAttach}, {"logs", talkLogs},
	{"port-forward", talkPortForward},
}

func TestPassThrough(t *testing.T) {
	c := newCluster(t)
	t.Run("streams", func(t *testing.T) { testStreams(t, c) })
	t.Run("identities", func(t *testing.T) { testIdentities(t, c) })
	t.Run("kubectl proxy", func(t *testing.T) { testKubectlProxy(t, c) })
	t.Run("commands", func(t *testing.T) { testCommands(t, c) })
	t.Run("gone clients", func(t *testing.T) { testGoneClients(t, c) })
	t.Run("gone server", func(t *testing.T) { testGoneServer(t, c) }) // the last one
}

// kubectl's streams pass through the proxy, by both protocols. The server itself is the control.
func testStreams(t *testing.T, c *cluster) {
	for _, through := range []struct {
		name string
		to   *peer.Server
		by   protocol
	}{{"websockets", c.proxy, webSocket}, {"spdy", c.proxy, spdy}, {"server", c.server, webSocket}} {
		t.Run(through.name, func(t *testing.T) {
			before := c.sockets()
			for _, stream := range streams {
				t.Run(stream.name, func(t *testing.T) {
					pod := through.name + "-" + stream.name
					container := c.run(t, pod, map[int32]string{80: repeater(t)})
					stream.talk(c.session(t, through.to.Kubeconfig(), through.by), pod, container)
					await.True(t, "no command runs", func() bool { return container.busy() == 0 })
				})
			}
			// Without WebSockets kubectl falls back to SPDY, and says nothing.
			if used := c.sockets() - before; (used > 0) != (through.by == webSocket) {
				t.Errorf("%v streams were WebSockets", used)
			}
		})
	}
	// They are not among the latencies of writes and reads, as at the server.
	for _, subresource := range []string{"exec", "attach", "portforward", "log"} {
		for _, at := range []*peer.Server{c.proxy, c.server} {
			m, err := at.Metrics(t.Context())
			c.must(err)
			if n := m.Sum("apiserver_request_total", peer.Labels{"verb": "CONNECT", "subresource": subresource}); n == 0 {
				t.Errorf("%s is not counted", subresource)
			}
		}
	}
}

// sockets returns how many streams reached the server as WebSockets.
func (c *cluster) sockets() float64 {
	c.Helper()
	m, err := c.server.Metrics(c.Context())
	c.must(err)
	return m.Sum("apiserver_stream_translator_requests_total", nil) + m.Sum("apiserver_stream_tunnel_requests_total", nil)
}

// noise returns random bytes.
func noise(n int) []byte {
	text := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(text)
	return text
}

// ticking is a command that reads nothing and writes again and again.
var ticking = []string{"sh", "-c", "while sleep 0.1; do echo tick; done"}

// Standard input, whose end arrives, output and errors, each by itself, and the exit code.
func talkExec(s *session, pod string, c *container) {
	text := noise(*size)
	r := s.kubectl(bytes.NewReader(text), "exec", "-i", pod, "--", "sh", "-c",
		"tee copy | sha256sum; echo careful >&2; exit 42")
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256(text)); r.stdout != want ||
		r.stderr != "careful\ncommand terminated with exit code 42\n" || r.code != 42 {
		s.Errorf("%+v, want the output %q", r, want)
	}
	if r := s.kubectl(nil, "exec", pod, "--", "cat", "copy"); r.stdout != string(text) || r.code != 0 {
		s.Errorf("%d bytes of output, exit code %d: %s", len(r.stdout), r.code, r.stderr)
	}
	if r := s.kubectl(nil, "exec", pod, "--", "no such command"); r.code != 1 ||
		!strings.Contains(r.stderr, "executable file not found") {
		s.Errorf("no command: %+v", r)
	}
	// A command that is interrupted ends behind it, if it reads or writes.
	for _, command := range [][]string{{"cat"}, ticking} {
		r := s.start(append([]string{"exec", "-i", pod, "--"}, command...)...)
		await.True(s, "the command runs", func() bool { return c.busy() == 1 })
		s.cluster.must(r.Process.Signal(os.Interrupt))
		r.end(s)
		await.True(s, "the command has ended", func() bool { return c.busy() == 0 })
	}
}

// A shell in a terminal: its size, a new size, Ctrl-C, and the exit code.
func talkTerminal(s *session, pod string, _ *container) {
	command := s.command("exec", "-it", pod, "--", "sh")
	terminal, err := pty.StartWithSize(command, &pty.Winsize{Rows: 40, Cols: 100})
	s.cluster.must(err)
	defer terminal.Close()
	output := newOutput()
	go func() {
		_, _ = io.Copy(output, terminal)
		output.end()
	}()
	enter := func(text string) {
		_, err := io.WriteString(terminal, text)
		s.cluster.must(err)
	}
	// The size is sent beside the input, which can be there before it.
	hasSize := func(size string) {
		await.True(s, "the size "+size+" is known", func() bool {
			before := output.size()
			enter("stty size; echo size-$((1+1))\n")
			return strings.Contains(output.wait(s, before, "size-2"), size)
		})
	}
	hasSize("40 100")
	s.cluster.must(setSize(terminal, 50, 120))
	hasSize("50 120")
	// The child says that it runs: between it and the shell, Ctrl-C would reach neither.
	enter("sh -c 'echo asleep-$((1+1)); exec sleep 1000'\n")
	output.wait(s, 0, "asleep-2")
	enter("\x03")
	enter("echo awake-$((1+1))\n")
	output.wait(s, 0, "awake-2")
	enter("exit 7\n")
	if _ = command.Wait(); command.ProcessState.ExitCode() != 7 {
		s.Errorf("exit code %d, want 7", command.ProcessState.ExitCode())
	}
}

// A directory is copied to a container, and from it.
func talkCopy(s *session, pod string, c *container) {
	from, back := filepath.Join(s.TempDir(), "from"), filepath.Join(s.TempDir(), "back")
	files := map[string][]byte{"large": noise(*size), "deep/below/empty": nil, "deep/a name": []byte("text\n")}
	for name, text := range files {
		s.cluster.must(os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o700))
		s.cluster.must(os.WriteFile(filepath.Join(from, name), text, 0o600))
	}
	s.succeed("cp", from, pod+":"+c.dir+"/there")
	s.succeed("cp", pod+":"+c.dir+"/there", back)
	for _, dir := range []string{c.dir + "/there", back} {
		for name, want := range files {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
				s.Errorf("%s in %s: %d bytes, %v", name, dir, len(got), err)
			}
		}
	}
}

// Lines to a container's main process, and its lines, until it ends.
func talkAttach(s *session, pod string, _ *container) {
	r := s.start("attach", "-i", pod)
	for _, line := range []string{"one", "two"} {
		_, err := fmt.Fprintln(r.stdin, line)
		s.cluster.must(err)
		r.output.wait(s, 0, "heard "+line+"\n")
	}
	_, err := fmt.Fprintln(r.stdin, "quit")
	s.cluster.must(err)
	if code := r.end(s); code != 0 {
		s.Errorf("exit code %d", code)
	}
}

// Lines of a log arrive when they are written, and the log ends with the container.
func talkLogs(s *session, pod string, c *container) {
	r := s.start("logs", "-f", pod)
	r.output.wait(s, 0, "started\n")
	for _, line := range []string{"one", "two", "quit"} {
		_, err := fmt.Fprintln(c.stdin, line)
		s.cluster.must(err)
		if line != "quit" {
			r.output.wait(s, 0, "heard "+line+"\n")
		}
	}
	if code := r.end(s); code != 0 {
		s.Errorf("exit code %d", code)
	}
	if got := s.succeed("logs", pod); got != "started\nheard one\nheard two\n" {
		s.Errorf("the log: %q", got)
	}
}

// Connections at once through a forwarded port, each of which ends in one direction first.
func talkPortForward(s *session, pod string, _ *container) {
	r := s.start("port-forward", pod, ":80")
	address := r.forwarded(s)
	var group errgroup.Group
	for i := range 4 {
		group.Go(func() error {
			connection, err := net.Dial("tcp", address)
			if err != nil {
				return err
			}
			defer connection.Close()
			text := noise(*size + i)
			if _, err := connection.Write(text); err != nil {
				return err
			}
			if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
				return err
			}
			got, err := io.ReadAll(connection)
			if err == nil && !bytes.Equal(got, text) {
				err = fmt.Errorf("%d of %d bytes return", len(got), len(text))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		s.Error(err)
	}
	s.cluster.must(r.Process.Signal(os.Interrupt))
	r.end(s)
}

// forwarded returns the local address of kubectl port-forward.
func (r *started) forwarded(tb testing.TB) string {
	tb.Helper()
	return regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(r.output.wait(tb, 0, "-> 80"))
}

// repeater is a server that sends back what it receives, after the end of that. It returns its address.
func repeater(tb testing.TB) string {
	tb.Helper()
	listener := value(localhost.Listen())(tb)
	tb.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				text, _ := io.ReadAll(connection)
				_, _ = connection.Write(text)
			}()
		}
	}()
	return listener.Addr().String()
}
