package manager

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/keepwatch/keepwatch/operator"
)

// unhealthy is an operator that cannot follow its resource.
type unhealthy struct{}

func (unhealthy) Name() string   { return "gadgets.example.com" }
func (unhealthy) Healthy() error { return errors.New("STALLED for 3m0s") }

func ask(h http.Handler) (code int, body string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	text, _ := io.ReadAll(w.Body)
	return w.Code, string(text)
}

func TestHealthHandler(t *testing.T) {
	if code, body := ask(HealthHandler(idle())); code != http.StatusOK || body != "widgets.example.com: ok\n" {
		t.Errorf("%d %s", code, body)
	}
	want := "widgets.example.com: ok\ngadgets.example.com: STALLED for 3m0s\n"
	if code, body := ask(healthHandler(idle(), unhealthy{})); code != http.StatusInternalServerError || body != want {
		t.Errorf("%d %s, want 500 %s", code, body, want)
	}
}

// Two operators of a resource have one /metrics and one /healthz.
func TestEndpointsOfTwoOperators(t *testing.T) {
	ops := []*operator.Operator{operator.New("pods"), operator.New("pods", operator.Prefix("example.com"))}
	p := &endpoints{health: "127.0.0.1:0", metrics: "0", ops: ops}
	serve, err := p.listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := serve(ctx); err != nil {
		t.Error(err)
	}
	if code, body := ask(HealthHandler(ops...)); code != http.StatusOK || body != "pods: ok\npods@example.com: ok\n" {
		t.Errorf("%d %s", code, body)
	}
}

func TestEndpoints(t *testing.T) {
	p := &endpoints{health: "127.0.0.1:0", metrics: "127.0.0.1:0", ops: []*operator.Operator{idle()}}
	serve, err := p.listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if code, _ := ask(http.HandlerFunc(p.ready)); code != http.StatusOK {
		t.Errorf("/readyz answers %d, want 200", code)
	}
	p.ending.Store(true)
	if code, _ := ask(http.HandlerFunc(p.ready)); code != http.StatusInternalServerError {
		t.Errorf("/readyz answers %d while the process ends, want 500", code)
	}
}
