package proxy

import (
	"bufio"
	"context"
	"fmt"
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
// never answers.
type pipedJudge struct {
	judge
	silent   atomic.Bool
	accepted atomic.Int64
}

// client returns a client of the judge, and the circuit of its reviews.
func (p *pipedJudge) client(t *testing.T) (kubernetes.Interface, *circuit) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go p.serve(server)
		return client, nil
	}}
	c := &circuit{}
	reviews, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://judge", Transport: c.around(transport), QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return reviews, c
}

func (p *pipedJudge) serve(c net.Conn) {
	defer c.Close()
	p.accepted.Add(1)
	if p.silent.Load() {
		_, _ = io.Copy(io.Discard, c)
		return
	}
	q, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, q)
	_ = w.Result().Write(c)
}

// While the server swallows reviews, one request at a time waits for it. The others have the last decision or an error
// at once, and nobody is allowed what the server has not allowed.
func TestUnansweredReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		reviews, c := server.client(t)
		p, err := newPermissions(reviews.AuthorizationV1(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		begun := time.Now()
		expect := func(name string, want, fails bool, after time.Duration, connections int64) {
			t.Helper()
			before, accepted := time.Now(), server.accepted.Load()
			p.expect(t, asks(name, "pods"), want, fails)
			if took, asked := time.Since(before), server.accepted.Load()-accepted; took != after || asked != connections {
				t.Errorf("after %v, %s waits %v, with %d connections; want %v, %d", before.Sub(begun), name, took, asked, after, connections)
			}
		}
		server.allows.Store(true)
		expect("ada", true, false, 0, 1)
		server.silent.Store(true)
		var first sync.WaitGroup
		for i := range 100 {
			first.Go(func() { p.expect(t, asks(fmt.Sprint("user-", i), "pods"), false, true) })
		}
		first.Wait()
		if took := time.Since(begun); took != reviewFor {
			t.Errorf("the first requests wait %v", took)
		}
		p.settle() // ada's decision is to be renewed
		for i := range 100 {
			expect(fmt.Sprint("user-", i), false, true, 0, 0)
			expect("ada", true, false, 0, 0)
		}

		time.Sleep(failureKnownFor)
		first.Go(func() { p.expect(t, asks("bob", "pods"), false, true) })
		synctest.Wait() // bob's review is sent
		for range 2 * int(reviewFor/time.Second) {
			expect("user-0", false, true, 0, 0)
			expect("ada", true, false, 0, 0)
			time.Sleep(time.Second / 2)
		}
		first.Wait()

		server.silent.Store(false)
		expect("user-1", false, true, 0, 0)
		time.Sleep(failureKnownFor)
		expect("user-1", true, false, 0, 1)
		expect("user-2", true, false, 0, 1)
		server.allows.Store(false)
		expect("user-3", false, false, 0, 1)

		// A change of a role shows that the server answers. An answer to another review does, too.
		server.silent.Store(true)
		expect("user-4", false, true, reviewFor, 1)
		expect("user-5", false, true, 0, 0)
		p.forget()
		first.Go(func() { p.expect(t, asks("bob", "pods"), false, true) })
		synctest.Wait() // bob's review is swallowed
		server.silent.Store(false)
		time.Sleep(time.Second)
		expect("user-5", false, false, 0, 1)
		first.Wait()
		expect("user-6", false, false, 0, 1)
	})
}

// While the server swallows reviews, one client with the proxy's own token waits. The others act as the identity that the
// server has confirmed last.
func TestUnansweredReviewOfTheProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		reviews, _ := server.client(t)
		own, err := newOwnIdentity("secret", &rest.Config{Host: "http://judge"}, reviews.AuthenticationV1())
		if err != nil {
			t.Fatal(err)
		}
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

// Whoever changes a role again and again does not have open watches reviewed as often, and a watch that is no longer
// allowed ends within a second.
func TestGuardsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		reviews, c := server.client(t)
		p, err := newPermissions(reviews.AuthorizationV1(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		a := asks("ada", "pods")
		_, changed, err := p.allowed(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := p.guard(t.Context(), a, changed)
		defer end()
		time.Sleep(settling)
		before := server.asked.Load()
		p.forget()
		synctest.Wait()
		if n := server.asked.Load() - before; n != 1 {
			t.Errorf("%d reviews after the first change", n)
		}
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			p.forget()
			synctest.Wait()
		}
		if n := server.asked.Load() - before; n < 10 || n > 11 || ctx.Err() != nil {
			t.Errorf("%d reviews of an open watch in ten seconds; its end: %v", n, ctx.Err())
		}
		server.allows.Store(false)
		p.forget()
		last := time.Now()
		<-ctx.Done()
		if took := time.Since(last); took > time.Second {
			t.Errorf("a watch that is no longer allowed ends after %v", took)
		}
	})
}
