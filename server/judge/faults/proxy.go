package faults

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/localhost"
)

// Proxy is a running proxy. Its methods are safe for concurrent use.
type Proxy struct {
	plan        Plan
	draws       *draws
	config      *rest.Config // of clients
	upstream    *upstream
	history     *history // nil unless the plan needs it
	transcript  *transcript
	listener    *listener
	certificate *certificate
	server      *http.Server
	ctx         context.Context // until Close
	cancel      context.CancelFunc
	served      sync.WaitGroup // the server's loop, all exchanges and outages

	mu      sync.Mutex
	closed  bool // no exchange begins any more
	queued  []queued
	watches map[*exchange]struct{} // that are open

	calm atomic.Bool // the plan is over
}

// queued is a fault for a later request.
type queued struct {
	class    Class
	resource string
	fault    Fault
}

// Options configure a proxy that Start starts.
type Options struct {
	// Listen is the address, by default an unused port of 127.0.0.1.
	Listen string
	// Record, unless empty, is an existing folder, to which the proxy writes the plan with its seed and
	// the transcript. ReadTranscript reads it.
	Record string
}

// TB is what [New] needs of a test. A [testing.TB] is one; with that type, package testing would be linked into every
// program that has a proxy.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Error(args ...any)
	Fatal(args ...any)
}

// New starts a proxy in front of the server that upstream reaches, for the
// duration of the test. If the test fails, it prints the seed and the transcript.
func New(tb TB, upstream *rest.Config, plan Plan) *Proxy {
	tb.Helper()
	p, err := Start(upstream, plan, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		err := p.Close()
		if tb.Failed() {
			var b strings.Builder
			p.WriteTranscript(&b)
			tb.Logf("proxy with seed %d:\n%s", p.Seed(), b.String())
		}
		if err != nil {
			tb.Error(err)
		}
	})
	return p
}

// Start starts a proxy in front of the server that upstream reaches. The caller closes it.
func Start(upstream *rest.Config, plan Plan, options Options) (*Proxy, error) {
	rules, err := plan.compile()
	if err != nil {
		return nil, err
	}
	if plan.Seed == 0 {
		plan.Seed = rand.Uint64()
	}
	p := &Proxy{plan: plan, draws: newDraws(plan.Seed, rules), watches: make(map[*exchange]struct{})}
	if p.upstream, err = newUpstream(upstream); err != nil {
		return nil, err
	}
	if p.draws.needHistory() {
		p.history = newHistory(p.upstream)
	}
	if p.certificate, err = newCertificate(options.Listen); err != nil {
		return nil, err
	}
	if p.listener, err = listen(options.Listen); err != nil {
		return nil, err
	}
	var record *recorder
	if options.Record != "" { // last: a proxy that does not start leaves no record
		if record, err = newRecorder(options.Record, plan); err != nil {
			_ = p.listener.Close()
			return nil, err
		}
	}
	p.transcript = newTranscript(record)
	p.config = p.upstream.clientConfig(upstream, p.listener.Addr(), p.certificate.authority())
	p.serve()
	return p, nil
}

func (p *Proxy) serve() {
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.server = &http.Server{
		Handler:     http.HandlerFunc(p.handle),
		TLSConfig:   &tls.Config{GetCertificate: p.certificate.get, SessionTicketsDisabled: true},
		ConnContext: withConnection,
		ErrorLog:    log.New(io.Discard, "", 0), // clients that disconnect, and faults
		Protocols:   new(http.Protocols),
	}
	p.server.Protocols.SetHTTP1(true)
	p.server.Protocols.SetHTTP2(!p.plan.HTTP1)
	p.served.Go(func() { _ = p.server.ServeTLS(p.listener, "", "") })
}

// Close ends the proxy, all that runs through it, and its goroutines. It returns the error of
// the record.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	_ = p.listener.Close()
	p.listener.resetAll() // half-open connections too, which Close would wait for
	_ = p.server.Close()
	p.served.Wait()
	p.upstream.close()
	return p.transcript.close()
}

// Config is a new client configuration that goes through the proxy. It has the upstream one's token. If that
// has other credentials, such as a certificate, or impersonates a user, the proxy does so for all requests, serves
// only clients with a token of its own, and the configuration has this one.
func (p *Proxy) Config() *rest.Config { return rest.CopyConfig(p.config) }

// Seed returns the seed of the random decisions.
func (p *Proxy) Seed() uint64 { return p.plan.Seed }

// Next queues faults for the next requests of a class and a resource, either of
// which may be Any: one each, in this order. They precede the plan's.
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
// open watch is too late: it has the effect of Event. None resumes stalled watches and half-open
// connections.
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

// Down resets all connections, and has new ones refused until Up is called, also after the end of an outage of the
// plan.
func (p *Proxy) Down() error {
	err := p.listener.setDown(true)
	p.listener.resetAll()
	return err
}

// Up ends Down, and no outage of the plan. The address is the same as before.
func (p *Proxy) Up() error { return p.listener.setDown(false) }

// Calm ends the plan: its rules and its Fate select no request any more, and a fault of the plan that an open watch
// has not reached does not occur. What has begun goes on: a half-open connection stays so. Faults of Next and Now
// still occur.
func (p *Proxy) Calm() { p.calm.Store(true) }

// Count returns the number of requests of a class and a resource, either of which may be
// Any.
func (p *Proxy) Count(class Class, resource string) int {
	return p.transcript.count(class, resource)
}

// Transcript returns the requests so far, in the order of their arrival, at most 65,536.
func (p *Proxy) Transcript() []Entry { return p.transcript.snapshot() }

// WriteTranscript writes the transcript for people, a line a request.
func (p *Proxy) WriteTranscript(w io.Writer) { p.transcript.writeTo(w) }

// draw returns the fault of a new request, and whether it is of the plan.
func (p *Proxy) draw(req Request, now time.Duration) (f Fault, planned bool) {
	if f, ok := p.next(req); ok {
		return f, false
	}
	if p.calm.Load() {
		return None, false
	}
	if f := p.draws.fault(req, now); f.kind != none {
		return f, true
	}
	return p.plan.Fate.draw(p.plan.Seed, req), true
}

// next returns the first queued fault for a request.
func (p *Proxy) next(req Request) (Fault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, q := range p.queued {
		if req.matches(q.class, q.resource) {
			p.queued = slices.Delete(p.queued, i, i+1)
			return q.fault, true
		}
	}
	return None, false
}

// handle serves one request of a client.
func (p *Proxy) handle(w http.ResponseWriter, r *http.Request) {
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
	x.out = x.w
	defer p.transcript.end(x.entry)
	fault, planned := p.draw(x.entry.Request, x.entry.Start)
	x.planned = planned
	x.serve(fault)
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

// endOutageAfter ends an outage when a time is over. If the address is taken then, it waits for it.
func (p *Proxy) endOutageAfter(length time.Duration) {
	p.served.Go(func() {
		if !p.wait(length) {
			return
		}
		err := p.listener.endOutage()
		for err != nil && p.wait(reopenDelay) {
			err = p.listener.reopen()
		}
		if err != nil {
			p.transcript.note(fmt.Sprintf("an outage cannot end: %v", err))
		}
	})
}

// reopenDelay is how long an address that is taken is left alone.
const reopenDelay = 100 * time.Millisecond

// wait returns false if the proxy is closed before a time is over.
func (p *Proxy) wait(length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
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

// newCertificate makes the serving certificate for an address.
func newCertificate(address string) (*certificate, error) {
	valid, err := localhost.NewCertificate(hostOf(address)...)
	if err != nil {
		return nil, err
	}
	return pairs(valid)
}
