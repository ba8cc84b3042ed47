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

	verified struct{ objects, unknown int }

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

// Verified counts the objects that Options.Verify found sound, and the keys beside them that belong to no
// resource of this server. Both are zero before the server is ready.
func (s *Server) Verified() (objects, unknown int) {
	select {
	case <-s.ready:
		return s.verified.objects, s.verified.unknown
	default:
		return 0, 0
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
	if !embedded {
		access, err := newAccess(listener.Addr(), data, s.options.Token)
		if err != nil {
			return err
		}
		return s.serve(ctx, listener, access, data, s.options.Etcd)
	}
	found, err := checkData(ctx, data.file("etcd"))
	if err == nil && !found {
		err = data.checkLost()
	}
	if err != nil {
		return err
	}
	var access *access
	if found { // before etcd touches the data
		if access, err = newAccess(listener.Addr(), data, s.options.Token); err != nil {
			return err
		}
	}
	m, err := startMember(ctx, data, s.options.QuotaBackendBytes)
	if err != nil {
		return err
	}
	defer m.stop()
	if !found { // after etcd has begun: without it, these files tell that its data was lost
		if access, err = newAccess(listener.Addr(), data, s.options.Token); err != nil {
			return err
		}
	}
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.log.failed, cancel)()
	err = s.serve(serving, listener, access, data, EtcdCluster{Servers: []string{m.endpoint}})
	if m.log.failed.Err() != nil { // whatever else failed, it was for that
		err = fmt.Errorf("etcd stopped: %w", context.Cause(m.log.failed))
	}
	return err
}

// serve runs the layers above etcd until ctx ends.
func (s *Server) serve(ctx context.Context, listener *trackingListener, access *access, data *dataDir, cluster EtcdCluster) error {
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	defer loops.Wait()
	defer cancel()
	embedded, limit := len(s.options.Etcd.Servers) == 0, dialTimeout
	if embedded {
		limit = startTimeout // it answers already: only its disk may be slow
	}
	opening, opened := context.WithTimeout(ctx, limit)
	storage, err := openBackend(opening, cluster, s.options.Storage, s.options.WatchHistory, embedded || s.options.Adopt)
	opened()
	if err != nil {
		return err
	}
	defer storage.close()
	if s.options.Verify {
		if s.verified.objects, s.verified.unknown, err = storage.verify(ctx); err != nil {
			return err
		}
	}
	storage.checkFeatures()
	chain, err := newChain(listener, access, storage)
	if err != nil {
		return err
	}
	if embedded {
		loops.Go(func() { newSpace(storage.client).run(ctx) })
	}
	defer context.AfterFunc(storage.failed, cancel)()
	s.foreign = storage.readOnly()
	err = chain.run(ctx, func() error {
		loops.Go(func() {
			if chain.readers.settle(ctx) == nil {
				close(s.settled)
			}
		})
		s.readers = chain.readers
		loops.Go(func() { chain.readers.asked.run(ctx, data.kept("asked.json")) })
		return s.announce(access, data, cluster)
	})
	cancel()
	loops.Wait()
	if storage.failed.Err() != nil { // no read of its resource can be answered any more
		err = errors.Join(context.Cause(storage.failed), err)
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
