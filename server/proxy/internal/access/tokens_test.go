package access

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
)

// countingReviews counts the reviews of a server that clients in a synctest bubble reach.
type countingReviews struct {
	reviewing
	asked atomic.Int64
}

func (c *countingReviews) connect(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		if q, err := http.ReadRequest(bufio.NewReader(server)); err == nil {
			c.asked.Add(1)
			w := httptest.NewRecorder()
			c.ServeHTTP(w, q)
			_ = w.Result().Write(server)
		}
	}()
	return client, nil
}

func newCountingReviews(t *testing.T) (*countingReviews, *tokens) {
	c := &countingReviews{}
	client, err := authenticationclient.NewForConfig(&rest.Config{
		Host: "http://server", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: c.connect},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, newTokens(client, nil)
}

// A client that makes up tokens has few of them reviewed at a time, and keeps out no client of another address.
func TestReviewsPerAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, tokens := newCountingReviews(t)
		var holders []func()
		for range reviewsInFlight {
			release, err := tokens.inFlight.acquire(t.Context(), "192.0.2.1")
			if err != nil {
				t.Fatal(err)
			}
			holders = append(holders, release)
		}
		expect := func(address string, want error, after time.Duration) {
			t.Helper()
			before := time.Now()
			if _, err := tokens.user(t.Context(), fmt.Sprint("token of ", before.UnixNano(), address), address); !errors.Is(err,
				want) || time.Since(before) != after {
				t.Errorf("%s: %v after %v", address, err, time.Since(before))
			}
		}
		expect("192.0.2.1", ErrBusy, reviewFor)
		expect("192.0.2.2", nil, 0)
		const valid = "valid"
		tokens.known.Add(sha256.Sum256([]byte(valid)), reviewedToken{user: &user.DefaultInfo{Name: "ada"}, at: time.Now()},
			outageFor)
		before := time.Now()
		// behind a balancer, all have one address
		if _, err := tokens.again(t.Context(), valid, "192.0.2.1"); err != nil || time.Since(before) > 0 {
			t.Errorf("a token that is known: %v after %v", err, time.Since(before))
		}
		gone, leave := context.WithCancelCause(t.Context())
		left := errors.New("the client is gone")
		leave(left)
		if _, err := tokens.user(gone, "late", "192.0.2.1"); !errors.Is(err, left) {
			t.Errorf("a client that is gone: %v", err)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() { expect("192.0.2.1", nil, time.Second) })
		time.Sleep(time.Second)
		holders[0]()
		waiting.Wait()
		for _, release := range holders[1:] {
			release()
		}
		if asked, known := server.asked.Load(), len(tokens.inFlight.slots); asked != 3 || known != 0 {
			t.Errorf("%d reviews, %d addresses are remembered", asked, known)
		}
	})
}

// A wrong token is reviewed once, and evicts no valid one. An open watch has it reviewed again.
func TestWrongTokensAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, tokens := newCountingReviews(t)
		if _, err := tokens.user(t.Context(), "valid", ""); err != nil {
			t.Fatal(err)
		}
		server.refuses.Store(true)
		for range 100 {
			if _, err := tokens.user(t.Context(), "wrong", ""); !errors.Is(err, errUnknown) {
				t.Fatal(err)
			}
		}
		for i := range maxReviews + 1 {
			tokens.refused.Add(i, struct{}{}, tokenKnownFor)
		}
		if _, err := tokens.user(t.Context(), "valid", ""); err != nil {
			t.Error(err)
		}
		if n := server.asked.Load(); n != 2 {
			t.Errorf("%d reviews of two tokens", n)
		}
		server.refuses.Store(false)
		if known, err := tokens.again(t.Context(), "wrong", ""); err != nil || known.GetName() != "ada" {
			t.Errorf("asked again: %v, %v", known, err)
		}
	})
}

func TestClientAddress(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.1:1": "192.0.2.1", "[::ffff:192.0.2.1]:1": "192.0.2.1", "[2001:db8::1:2:3:4]:1": "2001:db8::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "@": "",
	} {
		if got := clientAddress(&http.Request{RemoteAddr: from}); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
}
