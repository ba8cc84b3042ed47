package access

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// pipedJudge is a judge that clients in a synctest bubble reach. While it is silent, it accepts connections, reads, and
// never answers. While it is unready, it says so to those that may read it.
type pipedJudge struct {
	judge
	silent, unready atomic.Bool
	hidden          atomic.Bool // nobody may read whether it is ready
}

// client returns a client of the judge.
func (p *pipedJudge) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	reviews, err := kubernetes.NewForConfig(p.config())
	if err != nil {
		t.Fatal(err)
	}
	return reviews
}

// probed returns a probe of the judge, which runs until the test ends.
func (p *pipedJudge) probed(t *testing.T) *Probe {
	probe := newProbe(p.client(t).Discovery().RESTClient())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { probe.run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return probe
}

func (p *pipedJudge) config() *rest.Config {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string,
		string) (net.Conn, error) {
		client, server := net.Pipe()
		go p.serve(server)
		return client, nil
	}}
	return &rest.Config{Host: "http://judge", Transport: transport, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func (p *pipedJudge) serve(c net.Conn) {
	defer c.Close()
	if p.silent.Load() {
		_, _ = io.Copy(io.Discard, c)
		return
	}
	q, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil || p.fails.Load() && q.URL.Path != probePath {
		return
	}
	w := httptest.NewRecorder()
	if q.URL.Path == probePath {
		switch {
		case p.hidden.Load():
			w.WriteHeader(http.StatusForbidden)
		case p.fails.Load() || p.unready.Load():
			w.WriteHeader(http.StatusInternalServerError)
		}
		_ = w.Result().Write(c)
		return
	}
	p.ServeHTTP(w, q)
	_ = w.Result().Write(c)
}

// While the server swallows reviews, one client with the proxy's own token waits. The others act as the identity that
// the server has confirmed last.
func TestUnansweredReviewOfTheProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		reviews := server.client(t)
		own := newOwnIdentity("secret", reviews.AuthenticationV1(), nil)
		expect := func(after time.Duration) {
			t.Helper()
			before := time.Now()
			if _, ok := own.user(t.Context()); !ok || time.Since(before) != after {
				t.Errorf("known: %v, after %v; want %v", ok, time.Since(before), after)
			}
		}
		expect(0)
		time.Sleep(tokenKnownFor)
		server.silent.Store(true)
		expect(reviewFor)
		time.Sleep(failureKnownFor)
		var asker sync.WaitGroup
		asker.Go(func() { expect(reviewFor) })
		synctest.Wait() // the review is sent
		for range 100 {
			expect(0)
		}
		asker.Wait()
	})
}

// Open watches are reviewed once a second at most while a role changes again and again, and a watch that is no longer
// allowed ends within a second.
func TestGuardsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		reviews := server.client(t)
		p, err := newPermissions(reviews.AuthorizationV1(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		ctx := guarded(t, p)
		time.Sleep(settling)
		before := server.asked.Load()
		p.forget("")
		synctest.Wait()
		if n := server.asked.Load() - before; n != 1 {
			t.Errorf("%d reviews after the first change", n)
		}
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			p.forget("")
			synctest.Wait()
		}
		if n := server.asked.Load() - before; n < 10 || n > 12 || ctx.Err() != nil {
			t.Errorf("%d reviews of an open watch in ten seconds; its end: %v", n, ctx.Err())
		}
		server.allows.Store(false)
		p.forget("")
		last := time.Now()
		<-ctx.Done()
		if took := time.Since(last); took > time.Second {
			t.Errorf("a watch that is no longer allowed ends after %v", took)
		}
	})
}

// An API server that still allows what has been revoked, because it follows roles later than the proxy, is asked again.
func TestLateServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		p, err := newPermissions(server.client(t).AuthorizationV1(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		for _, between := range []time.Duration{0, 10 * time.Millisecond, confirmedAfter - time.Millisecond, confirmedAfter,
			announcedEvery, 2 * settling} {
			ctx := guarded(t, p)
			p.forget("")
			time.Sleep(between)
			p.forget("")
			revoked := time.Now()
			time.Sleep(confirmedAfter / 2)
			if ctx.Err() != nil {
				t.Fatalf("an allowed watch has ended %v after another change", between)
			}
			server.allows.Store(false)
			<-ctx.Done()
			if took := time.Since(revoked); took > confirmedAfter+announcedEvery {
				t.Errorf("%v after another change: the watch ended after %v", between, took)
			}
			server.allows.Store(true)
			p.forget("")
			time.Sleep(settling)
			synctest.Wait()
		}
	})
}
