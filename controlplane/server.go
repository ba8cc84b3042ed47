package controlplane

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/controlplane/internal/datadir"
	"github.com/keepwatch/keepwatch/controlplane/internal/embeddedetcd"
	"github.com/keepwatch/keepwatch/controlplane/internal/serving"
)

// Server is a Kubernetes API server over etcd, in this process. [New] returns one and Run starts it.
// The other methods return their values after Ready is closed. All methods are safe for concurrent
// use.
type Server struct {
	options Options
	ready   chan struct{}
	warmed  chan struct{}

	// Set before ready is closed, and never changed after.
	client   *rest.Config
	dataDir  string
	etcd     EtcdCluster
	readOnly bool
	readers  *readers

	verified struct{ objects, unknown int }

	running sync.Once
}

// New returns a server, or an error for invalid options. It starts nothing; Run does.
func New(options Options) (*Server, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	return &Server{options: options, ready: make(chan struct{}), warmed: make(chan struct{})}, nil
}

// Ready returns a channel that is closed when the server answers all requests and the kubeconfig is
// written.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Warmed returns a channel that is closed when the server has decoded the objects that it read from
// etcd at the start. That is some time after Ready. Memory of the start can be released then.
func (s *Server) Warmed() <-chan struct{} { return s.warmed }

// RESTConfig returns a client configuration of the administrator, without a limit on the rate of
// requests. It returns nil before the server is ready. The caller owns the copy.
func (s *Server) RESTConfig() *rest.Config {
	select {
	case <-s.ready:
		return rest.CopyConfig(s.client)
	default:
		return nil
	}
}

// DataDir returns the folder of the server's data; empty before the server is ready.
func (s *Server) DataDir() string {
	select {
	case <-s.ready:
		return s.dataDir
	default:
		return ""
	}
}

// Verified returns the number of objects that Options.Verify found undamaged, and the number of keys
// that belong to no resource of this server. Both are zero before the server is ready.
func (s *Server) Verified() (objects, unknown int) {
	select {
	case <-s.ready:
		return s.verified.objects, s.verified.unknown
	default:
		return 0, 0
	}
}

// EtcdCluster returns the etcd that the server uses, embedded (a Unix socket) or external; empty
// before the server is ready. The server neither validates nor admits what other clients write to it.
func (s *Server) EtcdCluster() EtcdCluster {
	select {
	case <-s.ready:
		return s.etcd
	default:
		return EtcdCluster{}
	}
}

// ReadOnly reports whether the server refuses writes because the etcd belongs to another server;
// false before the server is ready. See [Options.Adopt].
func (s *Server) ReadOnly() bool {
	select {
	case <-s.ready:
		return s.readOnly
	default:
		return false
	}
}

// Run serves until ctx is done, and then returns nil within 5 seconds, when everything is stopped.
// It returns an error if the server cannot start, or cannot continue. It owns all goroutines, and can
// be called once.
func (s *Server) Run(ctx context.Context) error {
	err := errors.New("the server was run before: create a new one")
	s.running.Do(func() { err = s.run(ctx) })
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // ctx was done during the start
	}
	return err
}

func (s *Server) run(ctx context.Context) (err error) {
	if s.options.Kubeconfig != "" {
		if err := serving.CheckKubeconfig(s.options.Kubeconfig); err != nil {
			return err
		}
	}
	listener, err := serving.Listen(s.options.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	data, err := datadir.Open(s.options.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	if s.options.embedded() {
		return s.serveEmbedded(ctx, listener, data)
	}
	credentials, err := serving.LoadCredentials(listener.Addr(), data, s.options.Token)
	if err != nil {
		return err
	}
	return s.serve(ctx, listener, credentials, data, s.options.Etcd)
}

// serve runs the layers above etcd until ctx is done.
func (s *Server) serve(ctx context.Context, listener *serving.Listener, credentials *serving.Credentials, data *datadir.Dir, cluster EtcdCluster) error {
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	defer loops.Wait()
	defer cancel()
	limit := dialTimeout
	if s.options.embedded() {
		limit = startTimeout // etcd answers already: only its disk may be slow
	}
	opening, opened := context.WithTimeout(ctx, limit)
	storage, err := openBackend(opening, cluster, s.options.Storage, s.options.WatchHistory, s.options.embedded() || s.options.Adopt)
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
	chain, err := newChain(listener, credentials, storage)
	if err != nil {
		return err
	}
	if s.options.embedded() {
		loops.Go(func() { embeddedetcd.MonitorSpace(ctx, storage.client) })
	}
	defer context.AfterFunc(storage.failed, cancel)()
	s.readOnly = storage.readOnly()
	err = chain.run(ctx, func() error {
		s.readers = chain.readers
		loops.Go(func() {
			if chain.readers.waitWarmed(ctx) == nil {
				close(s.warmed)
			}
		})
		if !data.Temporary {
			loops.Go(func() { chain.readers.encodings.run(ctx, data.File(recentEncodingsFile)) })
		}
		return s.announce(credentials, data, cluster)
	})
	cancel()
	loops.Wait()
	if storage.failed.Err() != nil { // no read of its resource can be answered any more
		err = errors.Join(context.Cause(storage.failed), err)
	}
	return err
}

// announce writes the kubeconfig and closes Ready.
func (s *Server) announce(credentials *serving.Credentials, data *datadir.Dir, cluster EtcdCluster) error {
	s.client, s.dataDir, s.etcd = credentials.ClientConfig(), data.Path, cluster
	if s.options.Kubeconfig != "" {
		if err := serving.WriteKubeconfig(s.options.Kubeconfig, s.client); err != nil {
			return err
		}
	}
	close(s.ready)
	return nil
}
