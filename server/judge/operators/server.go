package operators

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// server is the API server of a run. The operator's requests pass through the run's traffic. It is a testServer, except
// in the tests that compare the verdicts with those on kube-apiserver.
type server interface {
	// RESTConfig returns the configuration of an administrator.
	RESTConfig() *rest.Config
	// UserConfig returns that of a user, with groups.
	UserConfig(name string, groups ...string) (*rest.Config, error)
	// Revision returns that of the newest write.
	Revision() keepwatch.Revision
	// DropHistory makes watches from earlier revisions fail with 410 Expired.
	DropHistory(context.Context) error
	// advance moves the time of simulated workloads.
	advance(time.Duration) error
	// past returns the answers of reads as they were at a revision.
	past(keepwatch.Revision) (*pastReads, error)
	// fork returns a server with the same objects for another run.
	fork(*traffic) (server, error)
	close() error
}

// testServer is an API server in this process.
type testServer struct {
	*controlplane.Server
	memory     *controlplane.Memory
	simulation *controlplane.Simulation // nil without workloads
	options    controlplane.Options
	stop       context.CancelFunc
	ended      chan error
}

// newTestServer starts a server without objects. With roles, it authorizes by them.
func newTestServer(t *traffic, simulate, roles bool) (server, error) {
	s := &testServer{memory: controlplane.NewMemory()}
	s.options = controlplane.Options{Controllers: true, Authorization: controlplane.AlwaysAllow}
	if roles {
		s.options.Authorization = controlplane.RBAC
	}
	if simulate {
		s.simulation = controlplane.NewSimulation()
		s.simulation.SkipDelays()
	}
	return s.started(t)
}

// started starts a server whose fields are set, and returns it when it is ready. After an error it is closed.
func (s *testServer) started(t *traffic) (server, error) {
	o := s.options
	o.Memory, o.Simulation = s.memory, s.simulation
	if t != nil {
		o.Middleware, o.Refused = t.around, t.refused
	}
	var err error
	if s.Server, err = controlplane.New(o); err != nil {
		s.memory.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop, s.ended = cancel, make(chan error, 1)
	go func() { s.ended <- s.Run(ctx) }()
	select {
	case <-s.Ready():
		return s, nil
	case err := <-s.ended:
		cancel()
		s.memory.Close()
		return nil, fmt.Errorf("the API server did not start: %w", err)
	}
}

func (s *testServer) close() error {
	defer s.memory.Close()
	s.stop()
	return <-s.ended
}

func (s *testServer) Revision() keepwatch.Revision { return s.memory.Revision() }

func (s *testServer) fork(t *traffic) (server, error) {
	fork := &testServer{memory: s.memory.Fork(), options: s.options}
	if s.simulation != nil {
		fork.simulation = s.simulation.Fork()
	}
	return fork.started(t)
}

func (s *testServer) advance(by time.Duration) error {
	if s.simulation == nil {
		return errors.New("time is advanced only with simulated workloads")
	}
	_, err := s.simulation.Advance(by)
	return err
}

// past starts a server with the objects of a revision. Nothing changes them.
func (s *testServer) past(revision keepwatch.Revision) (*pastReads, error) {
	memory, err := s.memory.At(revision)
	if err != nil {
		return nil, err
	}
	then, err := (&testServer{memory: memory}).started(nil)
	if err != nil {
		return nil, err
	}
	past, err := newPastReads(then.RESTConfig(), then.close, revision)
	if err != nil {
		return nil, errors.Join(err, then.close())
	}
	return past, nil
}
