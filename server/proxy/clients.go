package proxy

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

const (
	// maxClients bounds the clients that are counted each by itself. The others are counted together.
	maxClients   = 1000
	otherClients = "(others)"
	// unknownClients are those of which the proxy has authenticated no request: it forwards all that they send.
	unknownClients = "(not authenticated)"
	maxUserAgent   = 100
	shownClients   = 20
	unnamedClient  = "(no user agent)"
)

// ClientStatus is what clients with one user agent have sent and received.
type ClientStatus struct {
	UserAgent string `json:"userAgent"`
	Requests  uint64 `json:"requests"`
	Forwarded uint64 `json:"forwarded"` // of them
	Open      int64  `json:"open"`      // requests that are being answered, watches mostly
	Bytes     int64  `json:"bytes"`     // of response bodies, before the encryption
}

// clientUse counts for one user agent.
type clientUse struct {
	requests, forwarded atomic.Uint64
	open, bytes         atomic.Int64
}

// clients counts by user agent. It is safe for concurrent use.
type clients struct {
	mu  sync.Mutex
	all map[string]*clientUse
}

// of returns the client that sent a request. Only an authenticated one is counted by a user agent that is not counted yet:
// everybody can make up thousands.
func (c *clients) of(q *http.Request, authenticated bool) *clientUse {
	name, _, _ := strings.Cut(q.UserAgent(), " (") // the platform and the commit
	if name = name[:min(len(name), maxUserAgent)]; name == "" {
		name = unnamedClient
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.all[name] != nil:
	case !authenticated:
		name = unknownClients
	case len(c.all) >= maxClients:
		name = otherClients
	}
	if c.all[name] == nil {
		c.all[strings.Clone(name)] = &clientUse{} // the header may be a megabyte
	}
	return c.all[name]
}

// serve counts a request while handler answers it.
func (c *clientUse) serve(handler http.HandlerFunc, w http.ResponseWriter, q *http.Request) {
	c.requests.Add(1)
	c.open.Add(1)
	defer c.open.Add(-1)
	handler(responsewriter.WrapForHTTP1Or2(&countingWriter{w, c}), q.WithContext(context.WithValue(q.Context(), clientKey{}, c)))
}

// clientKey is the key of the client that a request is counted for.
type clientKey struct{}

// countingWriter counts the bytes of a response.
type countingWriter struct {
	http.ResponseWriter
	client *clientUse
}

func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.client.bytes.Add(int64(n))
	return n, err
}

// heaviest returns the clients that have received most.
func (c *clients) heaviest() []ClientStatus {
	c.mu.Lock()
	all := make([]ClientStatus, 0, len(c.all))
	for name, by := range c.all {
		all = append(all, ClientStatus{name, by.requests.Load(), by.forwarded.Load(), by.open.Load(), by.bytes.Load()})
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b ClientStatus) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Requests, a.Requests), strings.Compare(a.UserAgent, b.UserAgent))
	})
	return all[:min(len(all), shownClients)]
}
