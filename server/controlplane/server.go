package controlplane

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/embeddedetcd"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/serving"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/tokens"
)

// Server is a Kubernetes API server over memory or etcd, in this process. [New] returns one and Run starts it.
// The other methods return their values after Ready is closed. All methods are safe for concurrent
// use.
type Server struct {
	options Options
	ready   chan struct{}
	warmed  chan struct{}

	// Set before ready is closed, and never changed after.
	client      *rest.Config
	credentials *serving.Credentials
	backend     *backend
	dataDir     string
	etcd        EtcdCluster
	readOnly    bool
	readers     *readers

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

// UserConfig returns a client configuration of a user with groups, by a client certificate, without a limit on the
// rate of requests. It fails before the server is ready.
func (s *Server) UserConfig(name string, groups ...string) (*rest.Config, error) {
	select {
	case <-s.ready:
		return s.credentials.UserConfig(name, groups)
	default:
		return nil, errNotReady
	}
}

// DropHistory makes reads at earlier revisions, and watches from them, fail with 410 Expired, as if etcd had
// compacted them and the caches' history was gone. Watches that have begun continue. It fails before the server is
// ready, and with UpstreamStorage.
func (s *Server) DropHistory(ctx context.Context) error {
	select {
	case <-s.ready:
	default:
		return errNotReady
	}
	if s.options.Storage == UpstreamStorage {
		return errors.New("the history of k8s.io/apiserver's watch cache cannot be dropped")
	}
	return s.backend.dropHistory(ctx)
}

var errNotReady = errors.New("the server isn't ready: wait until Ready is closed")

// DataDir returns the folder of the server's data; empty before the server is ready, and with memory.
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
// before the server is ready, and with memory. The server neither validates nor admits what other clients write to it.
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
	if s.options.memory() {
		return s.serveMemory(ctx, listener)
	}
	data, err := datadir.Open(s.options.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	if s.options.embedded() {
		return s.serveEmbedded(ctx, listener, data)
	}
	credentials, err := serving.LoadCredentials(listener.Addr(), data, s.options.credentials())
	if err != nil {
		return err
	}
	return s.serveEtcd(ctx, listener, credentials, data, s.options.Etcd)
}

// serveMemory serves the objects in memory until ctx is done.
func (s *Server) serveMemory(ctx context.Context, listener *serving.Listener) error {
	memory := s.options.Memory
	if memory == nil {
		memory = NewMemory()
		defer memory.Close()
	}
	credentials, err := serving.LoadCredentials(listener.Addr(), memory.dir, s.options.credentials())
	if err != nil {
		return err
	}
	return s.serve(ctx, listener, credentials, memory.dir, memoryDatabase{memory.db})
}

// serveEtcd connects to etcd, and serves until ctx is done.
func (s *Server) serveEtcd(ctx context.Context, listener *serving.Listener, credentials *serving.Credentials,
	data *datadir.Dir, cluster EtcdCluster) error {
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	defer loops.Wait()
	defer cancel()
	limit := dialTimeout
	if s.options.embedded() {
		limit = startTimeout // etcd answers already: only its disk may be slow
	}
	opening, opened := context.WithTimeout(ctx, limit)
	etcd, err := openEtcd(opening, cluster, s.options.embedded() || s.options.Adopt)
	opened()
	if err != nil {
		return err
	}
	if s.options.Verify {
		if s.verified.objects, s.verified.unknown, err = etcd.verify(ctx); err != nil {
			etcd.close()
			return err
		}
	}
	etcd.checkFeatures()
	if s.options.embedded() {
		loops.Go(func() { embeddedetcd.MonitorSpace(ctx, etcd.client) })
	}
	s.etcd = cluster
	return s.serve(ctx, listener, credentials, data, etcd)
}

// serve runs the layers above the database until ctx is done, and closes it.
func (s *Server) serve(ctx context.Context, listener *serving.Listener, credentials *serving.Credentials,
	data *datadir.Dir, database database) error {
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	defer loops.Wait()
	defer cancel()
	issuer, err := tokens.NewIssuer(data, tokens.Config(s.options.ServiceAccounts))
	if err != nil {
		database.close()
		return err
	}
	storage := newBackend(database, metrics.NewKubeRegistry(), s.options.Storage, s.options.WatchHistory)
	defer storage.close()
	chain, err := newChain(listener, credentials, issuer, storage, s.options)
	if err != nil {
		return err
	}
	defer context.AfterFunc(storage.failed, cancel)()
	s.readOnly, s.backend = storage.readOnly(), storage
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
		return s.announce(credentials, data)
	})
	cancel()
	loops.Wait()
	if storage.failed.Err() != nil { // no read of its resource can be answered any more
		err = errors.Join(context.Cause(storage.failed), err)
	}
	return err
}

// announce writes the kubeconfig and closes Ready.
func (s *Server) announce(credentials *serving.Credentials, data *datadir.Dir) error {
	s.client, s.credentials, s.dataDir = credentials.ClientConfig(), credentials, data.Path
	if s.options.Kubeconfig != "" {
		if err := serving.WriteKubeconfig(s.options.Kubeconfig, s.client); err != nil {
			return err
		}
	}
	close(s.ready)
	return nil
}
