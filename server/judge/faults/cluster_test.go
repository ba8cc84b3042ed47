package faults

import (
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

const (
	pods      = "/api/v1/pods"
	watchPods = "/api/v1/pods?watch=1&resourceVersion=7"
)

// added returns frame number n of the cluster.
func added(n int) string {
	return fmt.Sprintf(`{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"pod-%d"}}}`+"\n", n)
}

// cluster is an API server whose watches send the frames of events, and end when events is
// closed. It compresses watches for clients that accept it, as Kubernetes 1.37 does with some.
type cluster struct {
	events chan string
	list   string
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if !r.URL.Query().Has("watch") {
		_, _ = io.WriteString(w, c.list)
		return
	}
	var out io.Writer = w
	flush := http.NewResponseController(w).Flush
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		out = z
		flush = func() error { return errors.Join(z.Flush(), http.NewResponseController(w).Flush()) }
	}
	for _ = flush(); ; _ = flush() {
		select {
		case e, ok := <-c.events:
			if !ok {
				return
			}
			_, _ = io.WriteString(out, e)
		case <-r.Context().Done():
			return
		}
	}
}

// newCluster starts a cluster with events 1 to n sent already.
func newCluster(t *testing.T, n int) (*cluster, *rest.Config) {
	c := &cluster{events: make(chan string, 100), list: `{"items":[` + strings.Repeat("1,", 50<<10) + `1]}`}
	for i := range n {
		c.events <- added(i + 1)
	}
	server := httptest.NewTLSServer(c)
	t.Cleanup(server.Close)
	ca := certificatePEM(server.Certificate())
	return c, &rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// client is an HTTP client of the proxy with a connection pool of its own.
type client struct {
	*http.Client
	host string
	// reset is closed once a connection was reset. The error of a response does not tell: a write of the HTTP/2 client may
	// take the socket's error, and then the read finds the end of the stream.
	reset chan struct{}
}

// resettable is a connection that notices its reset.
type resettable struct {
	net.Conn
	seen func()
}

func (r resettable) notice(n int, err error) (int, error) {
	if errors.Is(err, syscall.ECONNRESET) {
		r.seen()
	}
	return n, err
}

func (r resettable) Read(b []byte) (int, error)  { return r.notice(r.Conn.Read(b)) }
func (r resettable) Write(b []byte) (int, error) { return r.notice(r.Conn.Write(b)) }

func newClient(t *testing.T, p *Proxy, http1 bool) *client {
	config := p.Config()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	reset := make(chan struct{})
	seen := sync.OnceFunc(func() { close(reset) })
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: !http1}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return resettable{conn, seen}, nil
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{&http.Client{Transport: transport}, config.Host, reset}
}

// wantReset waits until a connection was reset.
func (c *client) wantReset(t *testing.T) {
	t.Helper()
	await.Receive(t, "a connection is reset", c.reset)
}

// get starts a request. The test closes its body.
func (c *client) get(ctx context.Context, uri string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.host+uri, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer secret")
	return c.Do(r)
}

// read returns all of an answer's body, and why it ended.
func (c *client) read(t *testing.T, uri string) (code int, body string, err error) {
	t.Helper()
	response, err := c.get(t.Context(), uri)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func bothProtocols(t *testing.T, test func(t *testing.T, http1 bool)) {
	for _, http1 := range []bool{true, false} {
		name := "HTTP2"
		if http1 {
			name = "HTTP1"
		}
		t.Run(name, func(t *testing.T) { test(t, http1) })
	}
}

// waitForEntries returns the transcript once it is as the test wants it.
func waitForEntries(t *testing.T, p *Proxy, ok func([]Entry) bool) (entries []Entry) {
	t.Helper()
	await.State(t, "the transcript is as the test wants it", func() (bool, string) {
		entries = p.Transcript()
		return ok(entries), fmt.Sprint(entries)
	})
	return entries
}

func certificatePEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
