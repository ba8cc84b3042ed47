package proxy

import (
	"bufio"
	"cmp"
	"context"
	"net"
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
	// Why has the number of forwarded requests by the reason to forward them.
	Why map[string]uint64 `json:"why,omitempty"`
	// Advice has the number of those from memory that could be answered at less cost, by what the client could change.
	Advice map[string]uint64 `json:"advice,omitempty"`
	Open   int64             `json:"open"`  // requests that are being answered, watches mostly
	Bytes  int64             `json:"bytes"` // of response bodies and upgraded connections, before the encryption
	// Recent are those of the last quarter of an hour that memory has answered or that were forwarded, oldest first.
	Recent []RecentReads `json:"recent,omitempty"`
	memory uint64        // requests that memory has answered
}

// clientUse counts for one user agent.
type clientUse struct {
	requests, memory atomic.Uint64
	open, bytes      atomic.Int64

	mu        sync.Mutex
	forwarded map[reason]uint64
	advised   map[advice]uint64
}

func (c *clientUse) forward(why reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forwarded[why]++
}

func (c *clientUse) advise(all []advice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range all {
		c.advised[a]++
	}
}

func (c *clientUse) status(name string) ClientStatus {
	s := ClientStatus{UserAgent: name, Why: map[string]uint64{}, Advice: map[string]uint64{}, Requests: c.requests.Load(),
		Open: c.open.Load(), Bytes: c.bytes.Load(), memory: c.memory.Load()}
	c.mu.Lock()
	defer c.mu.Unlock()
	for why, n := range c.forwarded {
		s.Why[string(why)] = n
		s.Forwarded += n
	}
	for what, n := range c.advised {
		s.Advice[string(what)] = n
	}
	return s
}

// clients counts by user agent. It is safe for concurrent use.
type clients struct {
	mu  sync.Mutex
	all map[string]*clientUse
}

// of returns the client that sent a request. Only an authenticated one is counted by a user agent that is not counted
// yet: everybody can make up thousands.
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
		c.all[strings.Clone(name)] = &clientUse{ // the header may be a megabyte
			forwarded: map[reason]uint64{}, advised: map[advice]uint64{},
		}
	}
	return c.all[name]
}

// serve counts a request, and a read of objects, while handler answers it.
func (c *clientUse) serve(handler http.HandlerFunc, w http.ResponseWriter, q *http.Request, read *readCount) {
	c.requests.Add(1)
	c.open.Add(1)
	defer c.open.Add(-1)
	defer read.answer(0)
	counted := &countingWriter{w, c, read}
	handler(responsewriter.WrapForHTTP1Or2(counted), q.WithContext(context.WithValue(q.Context(), countedKey{}, counted)))
}

type countedKey struct{}

// countedOf returns what counts the response to a request, nil if nothing does.
func countedOf(q *http.Request) *countingWriter {
	w, _ := q.Context().Value(countedKey{}).(*countingWriter)
	return w
}

// countingWriter counts the bytes of a response.
type countingWriter struct {
	http.ResponseWriter
	client *clientUse
	read   *readCount // nil if the request is no read of objects
}

func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *countingWriter) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.read.answer(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.sent(n)
	return n, err
}

func (w *countingWriter) sent(n int) {
	w.client.bytes.Add(int64(n))
	w.read.sent(n)
}

// Hijack returns a connection that counts what is sent on it.
func (w *countingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	hijacker, ok := w.ResponseWriter.(http.Hijacker)
	if !ok {
		return nil, nil, http.ErrNotSupported
	}
	connection, buffers, err := hijacker.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.read.answer(0) // the server may have refused to upgrade it: net/http does not learn that
	counted := countingConn{connection, w}
	return counted, bufio.NewReadWriter(buffers.Reader, bufio.NewWriter(counted)), nil
}

// countingConn is the connection of a request that has upgraded it.
type countingConn struct {
	net.Conn
	writer *countingWriter
}

func (c countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.writer.sent(n)
	return n, err
}

// status returns all clients, in no order.
func (c *clients) status() []ClientStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]ClientStatus, 0, len(c.all))
	for name, by := range c.all {
		all = append(all, by.status(name))
	}
	return all
}

// heaviest returns the clients that have received most.
func (c *clients) heaviest() []ClientStatus {
	all := c.status()
	slices.SortFunc(all, func(a, b ClientStatus) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Requests, a.Requests), strings.Compare(a.UserAgent,
			b.UserAgent))
	})
	return all[:min(len(all), shownClients)]
}
