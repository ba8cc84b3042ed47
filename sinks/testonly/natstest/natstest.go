// Package natstest runs a real NATS server with JetStream for a test, as a process: it can be killed and started again.
// The process is the test's own program, which calls [Main].
package natstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
)

// configVariable is the environment variable that makes a test's program a server.
const configVariable = "KEEPWATCH_TEST_NATS_CONFIG"

// Main runs the server instead of the tests in the process that [Start] starts. TestMain calls it first.
func Main() {
	file := os.Getenv(configVariable)
	if file == "" {
		return
	}
	options, err := server.ProcessConfigFile(file)
	if err == nil {
		var s *server.Server
		if s, err = server.NewServer(options); err == nil {
			s.ConfigureLogger()
			if err = server.Run(s); err == nil {
				s.WaitForShutdown()
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Server is a NATS server on 127.0.0.1.
type Server struct {
	tb      testing.TB
	dir     string
	port    int
	name    string         // in a cluster
	process *child.Process // nil: it was killed
}

// Start starts a server that ends with the test. The settings are further lines of its configuration.
func Start(tb testing.TB, settings string) *Server {
	tb.Helper()
	s := newServer(tb, settings)
	s.Restart()
	return s
}

func newServer(tb testing.TB, settings string) *Server {
	tb.Helper()
	s := &Server{tb: tb, dir: tb.TempDir(), port: freePort(tb)}
	s.Configure(settings)
	tb.Cleanup(func() {
		s.Kill()
		child.ShowLog(tb, "NATS", s.path("log"))
	})
	return s
}

func freePort(tb testing.TB) int {
	tb.Helper()
	port, err := localhost.FreePort()
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// Cluster is servers that replicate streams.
type Cluster []*Server

// StartCluster starts a cluster of three servers that ends with the test.
func StartCluster(tb testing.TB) Cluster {
	tb.Helper()
	var routes []string
	for range 3 {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", freePort(tb)))
	}
	var c Cluster
	for i, route := range routes {
		name := fmt.Sprint("server-", i)
		s := newServer(tb, fmt.Sprintf("server_name: %s\ncluster { name: test, listen: %q, routes: [%s] }", name,
			strings.TrimPrefix(route, "nats://"), strings.Join(routes, ", ")))
		s.name = name
		c = append(c, s)
	}
	for _, s := range c {
		s.Restart()
	}
	return c
}

// Addrs returns the addresses of the servers, as the address of a sink has them.
func (c Cluster) Addrs() string {
	var all []string
	for _, s := range c {
		all = append(all, s.Addr())
	}
	return strings.Join(all, ",")
}

// Leader returns the server that accepts messages of a stream, or nil if none is known to do so.
func (c Cluster) Leader(ctx context.Context, js jetstream.JetStream, stream string) *Server {
	found, err := js.Stream(ctx, stream)
	if err != nil || found.CachedInfo().Cluster == nil {
		return nil
	}
	for _, s := range c {
		if s.name == found.CachedInfo().Cluster.Leader {
			return s
		}
	}
	return nil
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// Configure writes the configuration for the next start.
func (s *Server) Configure(settings string) {
	s.tb.Helper()
	text := fmt.Sprintf("listen: 127.0.0.1:%d\njetstream { store_dir: %q }\nlog_file: %q\n%s\n", s.port, s.path("data"),
		s.path("log"), settings)
	if err := os.WriteFile(s.path("config"), []byte(text), 0o600); err != nil {
		s.tb.Fatal(err)
	}
}

// Addr returns the address of the server.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Restart starts the server, and waits until JetStream runs. The server must not run.
func (s *Server) Restart() {
	s.tb.Helper()
	s.launch()
	for end := time.Now().Add(await.Deadline); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-s.process.Done():
			s.tb.Fatalf("the NATS server has ended: %v", s.process.Err())
		default:
		}
		conn, err := net.Dial("tcp", s.Addr())
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			s.tb.Fatalf("NATS did not start within %v: %v", await.Deadline, err)
		}
	}
}

func (s *Server) launch() {
	s.tb.Helper()
	program, err := os.Executable()
	if err != nil {
		s.tb.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), configVariable+"="+s.path("config"))
	if s.process, err = child.Start(cmd, s.path("log")); err != nil {
		s.tb.Fatal(err)
	}
}

// Kill ends the server with SIGKILL.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	s.process.Kill()
	s.process = nil
}

// JetStream returns a client that reconnects, as another program's.
func (s *Server) JetStream(options ...nats.Option) jetstream.JetStream {
	s.tb.Helper()
	return connect(s.tb, s.Addr(), options...)
}

// JetStream returns a client of the servers that run.
func (c Cluster) JetStream() jetstream.JetStream {
	c[0].tb.Helper()
	return connect(c[0].tb, c.Addrs())
}

func connect(tb testing.TB, servers string, options ...nats.Option) jetstream.JetStream {
	tb.Helper()
	conn, err := nats.Connect(servers, append(options, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// Objects returns the values of a key-value bucket by their keys.
func Objects(ctx context.Context, js jetstream.JetStream, bucket string) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, await.Deadline)
	defer cancel()
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return nil, err
	}
	keys, err := kv.Keys(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, err
	}
	objects := map[string][]byte{}
	for _, key := range keys {
		e, err := kv.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		objects[key] = e.Value()
	}
	return objects, nil
}

// Messages returns a function that returns the bodies of a stream's messages since its last call. Messages without body
// are left out.
func Messages(js jetstream.JetStream, name string) func(context.Context) ([][]byte, error) {
	var read uint64
	return func(ctx context.Context) (bodies [][]byte, err error) {
		ctx, cancel := context.WithTimeout(ctx, await.Deadline)
		defer cancel()
		found, err := js.Stream(ctx, name)
		if err != nil {
			return nil, err
		}
		last := found.CachedInfo().State.LastSeq
		if read >= last {
			return nil, nil
		}
		consumer, err := found.OrderedConsumer(ctx,
			jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: read + 1,
				InactiveThreshold: 5 * time.Second, MaxResetAttempts: 3})
		if err != nil {
			return nil, err
		}
		messages, err := consumer.Messages()
		if err != nil {
			return nil, err
		}
		defer messages.Stop()
		for read < last {
			m, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				return bodies, err
			}
			at, err := m.Metadata()
			if err != nil {
				return bodies, err
			}
			if at.Sequence.Stream != read+1 {
				return bodies, fmt.Errorf("message %d of stream %s follows %d", at.Sequence.Stream, name, read)
			}
			read++
			if len(m.Data()) > 0 {
				bodies = append(bodies, m.Data())
			}
		}
		return bodies, nil
	}
}
