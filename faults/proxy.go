// Package faults is a reverse proxy for a Kubernetes API server. It breaks connections,
// streams and answers in the ways of networks and servers, by a seed or on a test's
// command, and records its faults.
//
//	proxy := faults.New(t, server.Config(), faults.Options{
//		Seed: 1,
//		Fate: faults.OneOf(0.9, 100<<10, faults.Storm()),
//	})
//	follow(proxy.Config())                                          // the test's client
//	proxy.Next(faults.List, "pods", faults.Answer(faults.TooManyRequests))
//	proxy.Now(faults.Watch, "pods", faults.Event(faults.Expired))
//	lists := proxy.Count(faults.List, "pods")
//
// The first of these that has a fault for a request decides: Next, then Fate. Now applies
// to open watches. The proxy forwards a request after its fault is decided, and changes
// nothing except by a fault.
package faults

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/localhost"
)

// Options configure a proxy. The zero value forwards everything.
type Options struct {
	// Seed is the seed of the random numbers of Fate.
	Seed uint64
	// Fate draws a fault for every request for which Next has none.
	Fate Fate
	// HTTP1 serves HTTP/1.1 only: each watch has a connection of its own.
	HTTP1 bool
}

// Proxy is a running proxy. Its methods are safe for concurrent use.
type Proxy struct {
	options    Options
	config     *rest.Config // of clients
	upstream   *url.URL
	transport  *http.Transport
	transcript *transcript
	listener   *listener
	server     *http.Server
	served     sync.WaitGroup // the server's loop and all exchanges

	mu      sync.Mutex
	closed  bool // no exchange begins any more
	queued  []queued
	watches map[*exchange]struct{} // that are open
}

// queued is a fault for a later request.
type queued struct {
	class    Class
	resource string
	fault    Fault
}

// New starts a proxy in front of the server that upstream reaches, for the
// duration of the test. If the test fails, it prints the transcript.
func New(tb testing.TB, upstream *rest.Config, options Options) *Proxy {
	tb.Helper()
	p, err := start(upstream, options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.Close()
		if tb.Failed() {
			var b strings.Builder
			p.WriteTranscript(&b)
			tb.Logf("proxy with seed %d:\n%s", options.Seed, b.String())
		}
	})
	return p
}

func start(upstream *rest.Config, options Options) (*Proxy, error) {
	target, err := url.Parse(upstream.Host)
	if err != nil {
		return nil, err
	}
	upstreamTLS, err := rest.TLSConfigFor(upstream)
	if err != nil {
		return nil, err
	}
	certificate, err := localhost.NewCertificate()
	if err != nil {
		return nil, err
	}
	pair, err := certificate.Pair()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		options:  options,
		upstream: target,
		transport: &http.Transport{
			TLSClientConfig: upstreamTLS,
			// One connection for each request: a fault of one cannot delay another. Bytes are
			// forwarded unchanged.
			MaxIdleConnsPerHost: 16, DisableCompression: true,
		},
		transcript: newTranscript(),
		watches:    make(map[*exchange]struct{}),
	}
	if p.listener, err = listen(); err != nil {
		return nil, err
	}
	p.config = rest.CopyConfig(upstream)
	p.config.Host = "https://" + p.listener.Addr().String()
	p.config.TLSClientConfig = rest.TLSClientConfig{CAData: certificate.Cert}
	p.server = &http.Server{
		Handler:     p,
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{pair}},
		ConnContext: withConnection,
		ErrorLog:    log.New(io.Discard, "", 0), // clients that disconnect, and faults
		Protocols:   new(http.Protocols),
	}
	p.server.Protocols.SetHTTP1(true)
	p.server.Protocols.SetHTTP2(!options.HTTP1)
	p.served.Go(func() { _ = p.server.ServeTLS(p.listener, "", "") })
	return p, nil
}

// Close ends the proxy, all that runs through it, and its goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.listener.resetAll() // frozen connections too, which Close would wait for
	_ = p.server.Close()
	p.served.Wait()
	p.transport.CloseIdleConnections()
}

// Config is a new client configuration that goes through the proxy, with the
// upstream one's token. Certificates of clients are the proxy's: upstream sees
// those of its own configuration.
func (p *Proxy) Config() *rest.Config { return rest.CopyConfig(p.config) }

// Next queues faults for the next requests of a class and a resource, either of
// which may be Any: one each, in this order.
func (p *Proxy) Next(class Class, resource string, faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range faults {
		p.queued = append(p.queued, queued{class, resource, f})
	}
}

// Now applies fault to the open watches of a class and a resource, either of which may be
// Any, at their next frame's end or at once if they are idle, and returns the number of
// these watches. A later command replaces one that has not been applied. For Answer an
// open watch is too late: it has the effect of Event. None resumes stalled and frozen
// watches.
func (p *Proxy) Now(class Class, resource string, fault Fault) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for x := range p.watches {
		if x.entry.matches(class, resource) {
			select {
			case <-x.commands:
			default:
			}
			x.commands <- fault
			n++
		}
	}
	return n
}

// Down resets all connections, and has new ones refused until Up is called.
func (p *Proxy) Down() error {
	err := p.listener.refuse()
	p.listener.resetAll()
	return err
}

// Up ends Down. The address is the same as before.
func (p *Proxy) Up() error { return p.listener.allow() }

// Count returns the number of requests of a class and a resource, either of which may be
// Any.
func (p *Proxy) Count(class Class, resource string) int {
	return p.transcript.count(class, resource)
}

// Transcript returns the requests so far, in the order of their arrival, at most 65,536.
func (p *Proxy) Transcript() []Entry { return p.transcript.snapshot() }

// WriteTranscript writes the transcript for people, a line a request.
func (p *Proxy) WriteTranscript(w io.Writer) { p.transcript.writeTo(w) }

// fate returns the fault of a new request.
func (p *Proxy) fate(req Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, q := range p.queued {
		if req.matches(q.class, q.resource) {
			p.queued = slices.Delete(p.queued, i, i+1)
			return q.fault
		}
	}
	return p.options.Fate.draw(p.options.Seed, req)
}

// ServeHTTP serves one request of a client.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.begin() {
		panic(http.ErrAbortHandler)
	}
	defer p.served.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	x := &exchange{
		proxy: p, ctx: ctx, cancel: cancel, w: w, r: r,
		entry:    p.transcript.begin(classify(r)),
		commands: make(chan Fault, 1),
	}
	defer x.record(func(e *Entry, now time.Duration) { e.End = now })
	x.serve(p.fate(x.entry.Request))
}

// begin adds an exchange to served, unless Close waits for that already.
func (p *Proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.served.Add(1)
	}
	return !p.closed
}

// open and close maintain the exchanges that Now applies to.
func (p *Proxy) open(x *exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches[x] = struct{}{}
}

func (p *Proxy) close(x *exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watches, x)
}

// forward sends the request upstream. Its context ends with the answer. A watch is requested without
// compression, since faults occur between its frames.
func (p *Proxy) forward(ctx context.Context, r *http.Request, watches bool) (*http.Response, error) {
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.Host = p.upstream.Scheme, p.upstream.Host, p.upstream.Host
	out.RequestURI = ""
	for _, name := range []string{"Connection", "Keep-Alive", "Te", "Upgrade"} {
		out.Header.Del(name)
	}
	if watches {
		out.Header.Del("Accept-Encoding")
	}
	return p.transport.RoundTrip(out)
}
