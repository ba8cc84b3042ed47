package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// own ends a service with the test, and shows the end of its log if the test
// failed. It fails the test if the service did not start.
func own(tb testing.TB, s *Service, err error) {
	tb.Helper()
	if s != nil && s.process != nil {
		tb.Cleanup(func() {
			s.Kill()
			if tb.Failed() {
				tb.Log(s.tail())
			}
		})
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// SharedKubernetes returns an etcd and a kube-apiserver that the tests of a package share.
// The first call starts them; [Main], which the package's TestMain must call, ends them.
// Tests use namespaces of their own and do not stop the server.
func SharedKubernetes(tb testing.TB) *Server {
	tb.Helper()
	return sharedKubernetes.get(tb)
}

// SharedServe is SharedKubernetes for keepwatch serve.
func SharedServe(tb testing.TB) *Server {
	tb.Helper()
	return sharedServe.get(tb)
}

var (
	sharedKubernetes = shared{start: startKubernetes}
	sharedServe      = shared{start: func(ctx context.Context, dir string) (*Server, error) {
		return startServe(ctx, dir, nil)
	}}
)

// shared is a server that runs from its first use to the end of Main.
type shared struct {
	start func(ctx context.Context, dir string) (*Server, error)

	mu     sync.Mutex
	dir    string
	server *Server
	err    error
}

// inMain is whether Main runs, so that shared servers get ended.
var inMain bool

func (s *shared) get(tb testing.TB) *Server {
	tb.Helper()
	if !inMain {
		tb.Fatal("this package's TestMain has to call peer.Main before tests can share servers")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil && s.err == nil {
		if s.dir, s.err = os.MkdirTemp("", "keepwatch-test-"); s.err == nil {
			s.server, s.err = s.start(context.Background(), s.dir)
		}
	}
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}

// end ends the server, and shows the end of the logs if a test failed.
func (s *shared) end(failed bool) error {
	if s.server != nil {
		services := []*Service{s.server.Service}
		if etcd := s.server.etcd; etcd != nil {
			services = append(services, etcd.Service)
		}
		for _, service := range services {
			service.Kill()
			if failed {
				fmt.Fprintln(os.Stderr, service.tail())
			}
		}
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// Main runs a package's tests, ends the servers they shared, and exits. It
// fails the package if a goroutine is left.
//
//	func TestMain(m *testing.M) { peer.Main(m) }
func Main(m *testing.M) {
	inMain = true
	code := m.Run()
	err := errors.Join(sharedKubernetes.end(code != 0), sharedServe.end(code != 0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(await.Goroutines(code))
}
