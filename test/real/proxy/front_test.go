package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/server/proxy"
)

// front is a proxy that can be restarted at its address.
type front struct {
	testing.TB
	config   proxy.Config
	server   *httptest.Server
	current  atomic.Pointer[proxy.Proxy]
	registry metrics.KubeRegistry // of the current one
	earlier  float64              // answered by those before
	relists  float64              // of those before
	end      func()
}

func newFront(t testing.TB, config proxy.Config) *front {
	f := &front{TB: t, config: config}
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		f.current.Load().ServeHTTP(w, q)
	}))
	f.server.EnableHTTP2 = true
	f.server.StartTLS()
	f.start()
	t.Cleanup(func() {
		f.end()
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

func (f *front) start() {
	f.registry = metrics.NewKubeRegistry()
	f.config.Registry = f.registry
	p, err := proxy.New(f.config)
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	f.current.Store(p)
	f.end = func() { cancel(); <-ended }
}

// Config returns a client configuration with the permissions of the proxy's own.
func (f *front) Config() *rest.Config {
	config := rest.AnonymousClientConfig(f.config.Server)
	config.Host, config.BearerToken, config.QPS = f.server.URL, f.config.Server.BearerToken, -1
	config.CAData, config.Insecure = nil, true
	return config
}

// Restart ends the proxy and its connections, and starts another one.
func (f *front) Restart(context.Context) error {
	f.relists += f.sum("keepwatch_storage_relists_total")
	f.end()
	f.server.CloseClientConnections()
	f.earlier = f.answered()
	f.start()
	return nil
}

// answered returns how many requests were answered from caches.
func (f *front) answered() float64 { return f.earlier + f.sum("keepwatch_readpath_answered_total") }

// sum returns the sum of a counter of the current proxy.
func (f *front) sum(name string) (n float64) {
	f.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
