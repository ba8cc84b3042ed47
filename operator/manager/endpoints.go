package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keepwatch/keepwatch/operator"
)

// HealthHandler returns a handler that answers 200 while all operators are healthy and 500
// otherwise, with a line for each operator.
func HealthHandler(ops ...*operator.Operator) http.Handler {
	checked := make([]healthy, len(ops))
	for i, op := range ops {
		checked[i] = op
	}
	return healthHandler(checked...)
}

// healthy is an operator as /healthz sees it.
type healthy interface {
	Name() string
	Healthy() error
}

func healthHandler(ops ...healthy) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var body strings.Builder
		code := http.StatusOK
		for _, op := range ops {
			if err := op.Healthy(); err != nil {
				code = http.StatusInternalServerError
				fmt.Fprintf(&body, "%s: %v\n", op.Name(), err)
				continue
			}
			fmt.Fprintf(&body, "%s: ok\n", op.Name())
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body.String()))
	})
}

// endpoints serves /healthz and /readyz at one address and /metrics at another, or all at
// one.
type endpoints struct {
	health, metrics string // addresses; "0" for none
	ops             []*operator.Operator
	ending          atomic.Bool
}

// listen opens the addresses, and fails at once if one of them is in use. The returned
// function serves them until ctx is done.
func (p *endpoints) listen() (serve func(ctx context.Context) error, err error) {
	muxes := map[string]*http.ServeMux{}
	at := func(address string) *http.ServeMux {
		if muxes[address] == nil {
			muxes[address] = http.NewServeMux()
		}
		return muxes[address]
	}
	at(p.health).Handle("/healthz", HealthHandler(p.ops...))
	at(p.health).HandleFunc("/readyz", p.ready)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registered := map[string]bool{}
	for _, op := range p.ops {
		switch name := op.Name(); {
		case p.metrics == "0":
		case registered[name]:
			return nil, fmt.Errorf("two operators have the name %s: their metrics cannot be told apart; set Prefix", name)
		default:
			registry.MustRegister(op.Collectors()...)
			registered[name] = true
		}
	}
	at(p.metrics).Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	delete(muxes, "0")
	var serving []func() error
	var servers []*http.Server
	for address, mux := range muxes {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			for _, s := range servers {
				_ = s.Close()
			}
			return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
		}
		server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, Addr: listener.Addr().String()}
		servers = append(servers, server)
		serving = append(serving, func() error { return server.Serve(listener) })
	}
	return func(ctx context.Context) error { return serveAll(ctx, servers, serving) }, nil
}

func serveAll(ctx context.Context, servers []*http.Server, serving []func() error) error {
	ended := make(chan error, len(serving))
	for _, serve := range serving {
		go func() { ended <- serve() }()
	}
	var errs []error
	left := len(serving)
	select {
	case <-ctx.Done():
	case err := <-ended:
		errs = append(errs, err)
		left--
	}
	for _, s := range servers {
		_ = s.Close()
	}
	for range left {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ready answers 200 until the process ends. A replica that waits for its election is
// ready: it can become the leader at any time.
func (p *endpoints) ready(w http.ResponseWriter, _ *http.Request) {
	if p.ending.Load() {
		http.Error(w, "the operator is stopping", http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}
