package testserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// Server is an API server that runs until its test ends. Its methods are safe for concurrent use, except that
// Restart, Rewind and Close must not run beside other methods. A method that fails fails the test.
type Server struct {
	t       testing.TB
	options options
	faults  *faults
	memory  *controlplane.Memory     // nil with etcd
	cluster *controlplane.Simulation // nil without the option Simulate

	begun  chan struct{} // closed at the end of the first start, after failed and listen were set
	failed error         // of the first start
	listen string        // the address for the next start

	mu      sync.Mutex
	running *controlplane.Server
	stop    context.CancelFunc
	ended   chan error
}

// New starts a server on a free port of 127.0.0.1, and returns it when it answers all requests, with what the options
// create. The server stops at the end of the test.
func New(t testing.TB, opts ...Option) *Server {
	t.Helper()
	printVerbose()
	var o options
	for _, set := range opts {
		set(&o)
	}
	if o.invalid != nil {
		t.Fatalf("testserver: %v", o.invalid)
	}
	s := newServer(t, o)
	if o.simulate {
		s.cluster = controlplane.NewSimulation()
	}
	switch {
	case o.history != nil && o.etcd:
		t.Fatal("testserver: History needs a server in memory, without the option Etcd")
	case o.history != nil:
		state, err := o.history(t.Context())
		if err != nil {
			t.Fatalf("testserver: History: %v", err)
		}
		t.Logf("testserver: begins with %s", state)
		s.memory = state.Memory
	case !o.etcd:
		s.memory = controlplane.NewMemory()
	}
	t.Cleanup(s.Close)
	s.begin()
	if err := setUp(t.Context(), s.Config(), o); err != nil {
		t.Fatalf("testserver: %v", err)
	}
	return s
}

func newServer(t testing.TB, o options) *Server {
	return &Server{t: t, options: o, faults: newFaults(), listen: "127.0.0.1:0", begun: make(chan struct{})}
}

// begin starts the server for the first time.
func (s *Server) begin() {
	defer close(s.begun)
	if s.failed = s.start(); s.failed != nil {
		return
	}
	if address, err := url.Parse(s.running.RESTConfig().Host); err == nil {
		s.listen = address.Host
	}
}

// portWait bounds the wait for the port of a server that is started again: a connection of another process can have it
// for a moment.
const portWait = 10 * time.Second

// start runs the server until shutdown.
func (s *Server) start() error {
	err := s.launch()
	for deadline := time.Now().Add(portWait); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
		err = s.launch()
	}
	return err
}

// restart starts the server again.
func (s *Server) restart() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("testserver: %v", err)
	}
}

// launch returns when the server answers all requests, or has failed to start.
func (s *Server) launch() error {
	authorization := controlplane.AlwaysAllow
	if s.options.rbac {
		authorization = controlplane.RBAC
	}
	server, err := controlplane.New(controlplane.Options{
		Listen: s.listen, Memory: s.memory, TemporaryEtcd: s.options.etcd, Authorization: authorization, Controllers: true,
		Version: s.options.version, Simulation: s.cluster, Middleware: s.faults.around, Refused: s.faults.refused,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	select {
	case <-server.Ready():
	case err := <-ended:
		cancel()
		return fmt.Errorf("the server did not start: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.stop, s.ended = server, cancel, ended
	return nil
}

// shutdown stops the server. It fails the test if the server had not started or ended before, or ends with an error.
func (s *Server) shutdown() {
	s.t.Helper()
	if <-s.begun; s.failed != nil {
		s.t.Errorf("testserver: %v", s.failed)
		return
	}
	s.mu.Lock()
	stop, ended := s.stop, s.ended
	s.stop = nil
	s.mu.Unlock()
	if stop == nil {
		return
	}
	s.faults.release()
	stop()
	if err := <-ended; err != nil {
		s.t.Errorf("testserver: the server ended with: %v", err)
	}
}

// Close stops the server before the end of the test. It may be called more than once.
func (s *Server) Close() {
	s.t.Helper()
	s.shutdown()
	if s.memory != nil {
		s.memory.Close()
	}
}

// server returns the server that runs, when it has started for the first time. It fails the test if it could not.
func (s *Server) server() *controlplane.Server {
	s.t.Helper()
	if <-s.begun; s.failed != nil {
		s.t.Fatalf("testserver: %v", s.failed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// Config returns a client configuration of the administrator, without a limit on the rate of requests. The caller owns
// it. It stays valid after Restart and Rewind.
func (s *Server) Config() *rest.Config {
	s.t.Helper()
	return s.server().RESTConfig()
}

// User returns a client configuration of a user in groups, who is authenticated by a client certificate. The user is in
// the group system:authenticated, too.
func (s *Server) User(name string, groups ...string) *rest.Config {
	s.t.Helper()
	config, err := s.server().UserConfig(name, groups...)
	if err != nil {
		s.t.Fatalf("testserver: a certificate of the user %s: %v", name, err)
	}
	return config
}

// Kubeconfig returns the path of a kubeconfig of the administrator, for programs. The file is removed at the end of the
// test.
func (s *Server) Kubeconfig() string {
	s.t.Helper()
	admin := s.Config()
	const name = "testserver"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: admin.BearerToken}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	if err = errors.Join(err, os.WriteFile(path, content, 0o600)); err != nil {
		s.t.Fatalf("testserver: %v", err)
	}
	return path
}

// Revision returns the newest resourceVersion of the server.
func (s *Server) Revision() keepwatch.Revision {
	s.t.Helper()
	return s.inMemory("Revision").Revision()
}

// inMemory returns the objects in memory. A server with etcd fails the test.
func (s *Server) inMemory(method string) *controlplane.Memory {
	s.t.Helper()
	if s.memory == nil {
		s.t.Fatalf("testserver: %s needs a server in memory, without the option Etcd", method)
	}
	return s.memory
}

// Fork returns a second server with the same objects, for the test t. It starts in the background, and Config, User and
// Kubeconfig return when it answers requests. The objects are not copied, whatever their number; each server sees only
// its own later writes. Clients of the first server cannot resume their watches at the second: they receive 410.
// Certificates of users are valid for both. Faults and the log of requests are the second server's own.
func (s *Server) Fork(t testing.TB) *Server {
	t.Helper()
	fork := newServer(t, s.options)
	fork.memory = s.inMemory("Fork").Fork()
	if s.cluster != nil {
		fork.cluster = s.cluster.Fork()
	}
	t.Cleanup(fork.Close) // it waits for begin
	go fork.begin()
	return fork
}

// Restart stops the server, and starts it again on the same port with the same objects. All watches end. Clients can
// resume from their revisions, and their configurations stay valid.
func (s *Server) Restart() {
	s.t.Helper()
	s.inMemory("Restart")
	s.shutdown()
	s.restart()
}

// Rewind restarts the server with the objects that it had at a revision, as if etcd had been restored from a backup:
// later writes are lost, and their revisions are given to other writes. It fails the test if the revision is not in the
// history (the last 5 minutes or 64 MiB), as after Expire.
func (s *Server) Rewind(to keepwatch.Revision) {
	s.t.Helper()
	then, err := s.inMemory("Rewind").At(to)
	if err != nil {
		s.t.Fatalf("testserver: rewind from revision %d to %d: %v", s.memory.Revision(), to, err)
	}
	s.shutdown()
	s.memory.Close()
	s.memory = then
	s.restart()
}

// Advance moves the time of the simulation forward at once: what is due by then, such as the end of a Job's pods or
// minReadySeconds, happens soon after. It does not wait for it. A negative duration, and a server without the option
// Simulate, fail the test.
func (s *Server) Advance(d time.Duration) {
	s.t.Helper()
	if s.cluster == nil {
		s.t.Fatalf("testserver: Advance needs the option Simulate")
	}
	if _, err := s.cluster.Advance(d); err != nil {
		s.t.Fatalf("testserver: advance by %v: %v", d, err)
	}
}

// Expire drops the history: a watch, or a list, from an earlier revision is answered 410 Gone, as after etcd's
// compaction. Watches that have begun continue; CutWatches makes them ask again.
func (s *Server) Expire() {
	s.t.Helper()
	if err := s.server().DropHistory(s.t.Context()); err != nil {
		s.t.Fatalf("testserver: drop the history: %v", err)
	}
}
