package matrix

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/test/history"
	"github.com/keepwatch/keepwatch/test/peer"
)

// Upstream is the API server of a cell.
type Upstream string

// The upstreams.
const (
	KubeAPIServer      Upstream = "kube-apiserver"
	Serve              Upstream = "serve"
	KeepwatchAPIServer Upstream = "keepwatch-apiserver"
	Proxy              Upstream = "proxy" // in front of kube-apiserver
)

// Server is a running API server and its etcd's history. It is safe for concurrent use.
type Server struct {
	upstream Upstream
	version  string
	config   *rest.Config
	writers  *rest.Config // of the server that writers use
	stored   *peer.Server // the one that stores: the same, or behind the proxy
	proxy    *peer.Server // nil without one

	mu      sync.Mutex
	etcd    *clientv3.Client
	history *history.Reader
}

// StartServer starts an upstream for the duration of the test.
func StartServer(tb testing.TB, upstream Upstream) *Server {
	tb.Helper()
	s := &Server{upstream: upstream}
	var err error
	etcd := peer.StartEtcd(tb)
	switch upstream {
	case KubeAPIServer:
		s.stored = peer.KubernetesOn(tb, etcd)
		s.version, err = peer.KubeAPIServer.Version()
	case Serve:
		s.stored = peer.ServeOn(tb, etcd)
	case KeepwatchAPIServer:
		s.stored = peer.KeepwatchAPIServerOn(tb, etcd)
	case Proxy:
		s.stored = peer.KubernetesOn(tb, etcd)
	default:
		err = fmt.Errorf("there is no upstream %q", upstream)
	}
	if err == nil {
		s.etcd, err = etcd.Client()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.etcd.Close() })
	s.config = s.stored.Config()
	if upstream == Proxy {
		s.proxy = peer.Proxy(tb, s.stored)
		s.config = s.proxy.Config()
	}
	s.writers = s.config
	newest, err := s.newest(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	s.history = &history.Reader{Prefix: "/registry/configmaps/", Read: newest}
	return s
}

// writeElsewhere starts another kube-apiserver on the same etcd, which writers use from now on.
func (s *Server) writeElsewhere(tb testing.TB) {
	tb.Helper()
	s.writers = peer.KubernetesOn(tb, s.stored.Etcd()).Config()
}

// newest returns etcd's newest revision.
func (s *Server) newest(ctx context.Context) (keepwatch.Revision, error) {
	answer, err := s.etcd.Get(ctx, "any", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return keepwatch.Revision(answer.Header.Revision), nil
}

// compact compacts etcd's history, of which it has read the writes before.
func (s *Server) compact(ctx context.Context) error {
	_, newest, err := s.writes(ctx, "")
	if err != nil {
		return err
	}
	_, err = s.etcd.Compact(ctx, int64(newest))
	return err
}

// writes returns the writes of a namespace so far, and etcd's newest revision.
func (s *Server) writes(ctx context.Context, namespace string) ([]check.Write, keepwatch.Revision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest, err := s.newest(ctx)
	if err == nil {
		err = s.history.ReadTo(ctx, s.etcd, newest)
	}
	if err != nil {
		return nil, 0, err
	}
	all := slices.Clone(s.history.Writes)
	return slices.DeleteFunc(all, func(w check.Write) bool { return w.Key.Namespace != namespace }), newest, nil
}
