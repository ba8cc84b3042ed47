package controlplane

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"
)

// Server is a Kubernetes API server over etcd, in this process. Make it with [New], start it with
// Run; the other methods tell about it once Ready is closed. All methods can be called from any
// goroutine.
type Server struct {
	options Options
	ready   chan struct{}
	settled chan struct{}

	// Set before ready is closed, and never changed after.
	client  *rest.Config
	dataDir string
	etcd    EtcdCluster
	foreign bool
	readers *readers

	running sync.Once
}

// New checks the options. It starts nothing.
func New(options Options) (*Server, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	return &Server{options: options, ready: make(chan struct{}), settled: make(chan struct{})}, nil
}

// Ready is closed when the server answers everything and the kubeconfig is written.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Settled is closed when the server, some time after it was ready, has decoded what it read of etcd
// at the start. What there is to tidy up behind a start can be tidied up then.
func (s *Server) Settled() <-chan struct{} { return s.settled }

// RESTConfig is how to reach the server, as its administrator, without a limit on the rate of
// requests. It is nil before the server is ready. The caller owns the copy.
func (s *Server) RESTConfig() *rest.Config {
	select {
	case <-s.ready:
		return rest.CopyConfig(s.client)
	default:
		return nil
	}
}

// DataDir is the folder of the server's data; empty before the server is ready.
func (s *Server) DataDir() string {
	select {
	case <-s.ready:
		return s.dataDir
	default:
		return ""
	}
}

// EtcdCluster is the etcd that the server uses, embedded (a Unix socket) or external; empty before
// the server is ready. Whoever writes to it goes behind the server's back.
func (s *Server) EtcdCluster() EtcdCluster {
	select {
	case <-s.ready:
		return s.etcd
	default:
		return EtcdCluster{}
	}
}

// ReadOnly reports whether the etcd holds somebody else's data, so that writes are refused; false before
// the server is ready. See [Options.Adopt].
func (s *Server) ReadOnly() bool {
	select {
	case <-s.ready:
		return s.foreign
	default:
		return false
	}
}

// Run serves until ctx ends, which is no error, and returns when everything is stopped, within 5
// seconds. It owns all goroutines. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	err := errors.New("the server was run before: make a new one")
	s.running.Do(func() { err = s.run(ctx) })
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // asked to end while it started
	}
	return err
}

func (s *Server) run(ctx context.Context) (err error) {
	if s.options.Kubeconfig != "" {
		if err := checkKubeconfig(s.options.Kubeconfig); err != nil {
			return err
		}
	}
	listener, err := listen(s.options.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	data, err := openDataDir(s.options.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.close()) }()
	embedded := len(s.options.Etcd.Servers) == 0
	if embedded {
		if err := checkData(data.file("etcd")); err != nil {
			return err
		}
	}
	access, err := newAccess(listener.Addr(), data, s.options.Token)
	if err != nil {
		return err
	}

	cluster, failed := s.options.Etcd, context.Background()
	if embedded {
		m, err := startMember(ctx, data, s.options.QuotaBackendBytes)
		if err != nil {
			return err
		}
		defer m.stop()
		cluster, failed = EtcdCluster{Servers: []string{m.endpoint}}, m.log.failed
	}
	storage, err := openBackend(ctx, cluster, s.options.Storage, s.options.WatchHistory, embedded || s.options.Adopt)
	if err != nil {
		return err
	}
	defer storage.close()
	if embedded {
		var making sync.WaitGroup
		defer making.Wait()
		spaceCtx, stop := context.WithCancel(ctx)
		defer stop()
		making.Go(func() { newSpace(storage.client).run(spaceCtx) })
	}
	chain, err := newChain(listener, access, storage)
	if err != nil {
		return err
	}
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(failed, cancel)
	defer stop()
	defer context.AfterFunc(storage.failed, cancel)()
	var settling sync.WaitGroup
	s.foreign = storage.readOnly()
	err = chain.run(serving, func() error {
		settling.Go(func() {
			if chain.readers.settle(serving) == nil {
				close(s.settled)
			}
		})
		s.readers = chain.readers
		settling.Go(func() { chain.readers.asked.run(serving, data.kept("asked.json")) })
		return s.announce(access, data, cluster)
	})
	cancel()
	settling.Wait()
	if storage.failed.Err() != nil { // no read of its resource can be answered any more
		err = errors.Join(context.Cause(storage.failed), err)
	}
	if failed.Err() != nil {
		err = errors.Join(fmt.Errorf("etcd stopped: %w", context.Cause(failed)), err)
	}
	return err
}

// announce lets the world know that the server is ready.
func (s *Server) announce(access *access, data *dataDir, cluster EtcdCluster) error {
	s.client, s.dataDir, s.etcd = access.client(), data.path, cluster
	if s.options.Kubeconfig != "" {
		if err := writeKubeconfig(s.options.Kubeconfig, s.client); err != nil {
			return err
		}
	}
	close(s.ready)
	return nil
}
