package forward

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
)

// The header Connection of a client that upgrades its connection ends at the proxy. Otherwise another proxy on the way
// would remove the headers that it names: those that impersonate the client's user.
func TestUpgradesHaveTheirOwnConnection(t *testing.T) {
	received := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		received <- q.Header
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, BearerToken: "the proxy's"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	control, err := access.New(config, client, access.Options{Certificates: true})
	if err != nil {
		t.Fatal(err)
	}
	inTheirNames, err := newImpersonator(config, control)
	if err != nil {
		t.Fatal(err)
	}
	as := rest.CopyConfig(config)
	as.Impersonate.UserName = "viewer"
	own, err := newOwnSender(as)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := newSender(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		forward             http.HandlerFunc
		user, authorization string // that the server receives
	}{
		"a certificate": {func(w http.ResponseWriter, q *http.Request) {
			inTheirNames.forward(w, q, func(string) bool { return true })
		}, "ada", "Bearer the proxy's"},
		"the proxy's own token": {own.forward, "viewer", "Bearer the proxy's"},
		"another token":         {plain.ServeHTTP, "", "Bearer client's"},
	} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			c.forward(w, q.WithContext(access.WithCertified(q.Context(),
				&user.DefaultInfo{Name: "ada", Groups: []string{"devs"}})))
		}))
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy.URL+
			"/api/v1/namespaces/default/pods/web/exec?command=id", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header = http.Header{"Connection": {"keep-alive, Impersonate-User", "upgrade, Impersonate-Group, Authorization"},
			"Upgrade": {"SPDY/3.1"}, "Authorization": {"Bearer client's"}}
		answer, err := http.DefaultTransport.RoundTrip(q)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		proxy.Close()
		if got := <-received; !slices.Equal(got["Connection"], []string{"Upgrade"}) || got.Get("Upgrade") != "SPDY/3.1" ||
			got.Get("Impersonate-User") != c.user || got.Get("Authorization") != c.authorization {
			t.Errorf("%s: the server receives %v", name, got)
		}
	}
}

// An upgrade is sent once, also after one that the server has refused: the server may have begun what it does not
// answer. An exec over WebSockets is a GET, and net/http repeats that if a connection that it has used before ends.
func TestUpgradesAreSentOnce(t *testing.T) {
	var received atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if received.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	s, err := newSender(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{http.StatusForbidden, http.StatusServiceUnavailable} {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			"/api/v1/namespaces/default/pods/web/exec?command=id", nil)
		q.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, q)
		if got := received.Load(); w.Code != want || got != int64(i+1) {
			t.Errorf("%d, and the server has received %d upgrades, want %d and %d", w.Code, got, want, i+1)
		}
	}
}

// A client that leaves before the server has answered its upgrade leaves no connection to the server behind.
func TestUpgradesEndWithTheirClient(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	silent, err := newSender(&rest.Config{Host: "http://" + listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		defer close(left)
		silent.ServeHTTP(w, q)
	}))
	defer proxy.Close()
	ctx, leave := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, proxy.URL+
		"/api/v1/namespaces/default/pods/web/exec?command=id", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	go func() {
		if answer, err := http.DefaultClient.Do(q); err == nil {
			answer.Body.Close()
		}
	}()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if _, err := http.ReadRequest(bufio.NewReader(accepted)); err != nil {
		t.Fatal(err)
	}
	leave()
	if _, err := io.Copy(io.Discard, accepted); err != nil {
		t.Error(err)
	}
	<-left
}

// The connection of a client whose request was upgraded ends with the server's, and not TLS alone, behind which clients
// in Java wait.
func TestUpgradesEndWithTheServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		_, _ = io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nlast")
	}))
	defer server.Close()
	forward, err := newSender(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewTLSServer(forward)
	defer proxy.Close()
	connection, err := net.Dial("tcp", proxy.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(await.Deadline)); err != nil {
		t.Fatal(err)
	}
	client := tls.Client(connection, &tls.Config{InsecureSkipVerify: true})
	_, err = io.WriteString(client, "GET /api/v1/namespaces/default/pods/web/exec HTTP/1.1\r\nHost: proxy\r\n"+
		"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if received, err := io.ReadAll(client); err != nil || !bytes.HasSuffix(received, []byte("last")) {
		t.Errorf("%q, %v", received, err)
	}
	if _, err := io.Copy(io.Discard, connection); err != nil {
		t.Errorf("the connection does not end: %v", err)
	}
}

// A response whose length the server does not say, such as a watch or a log, arrives part by part: the server sends the
// next part when the client has the one before.
func TestStreamsAreForwardedAtOnce(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		next := make(chan struct{})
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "part\n")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-next:
				case <-q.Context().Done():
					return
				}
			}
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		forward, err := newSender(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
		if err != nil {
			t.Fatal(err)
		}
		proxy := httptest.NewUnstartedServer(forward)
		proxy.EnableHTTP2 = http2
		proxy.StartTLS()
		ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, proxy.URL+
			"/api/v1/namespaces/default/pods/web/log?follow=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := proxy.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		if answer.ContentLength != -1 || (answer.ProtoMajor == 2) != http2 {
			t.Errorf("%s, length %d", answer.Proto, answer.ContentLength)
		}
		lines := bufio.NewReader(answer.Body)
		for range 3 {
			if line, err := lines.ReadString('\n'); line != "part\n" {
				t.Fatalf("%s: %q, %v", answer.Proto, line, err)
			}
			next <- struct{}{}
		}
		answer.Body.Close()
		cancel()
		proxy.Close()
		server.Close()
	}
}

// A client with the proxy's own token acts as the user that the proxy was started for, and as no other one.
func TestOwnTokenImpersonates(t *testing.T) {
	forwarded := atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { forwarded.Add(1) }))
	defer server.Close()
	for _, as := range []string{"", "viewer"} {
		own, err := newOwnSender(&rest.Config{Host: server.URL, Impersonate: rest.ImpersonationConfig{UserName: as}})
		if err != nil {
			t.Fatal(err)
		}
		for _, header := range []string{"Impersonate-User", "Impersonate-Uid", "Impersonate-Extra-Scopes", "Accept"} {
			before := forwarded.Load()
			q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil)
			q.Header.Set("Authorization", "Bearer secret")
			q.Header.Set(header, "other")
			w := httptest.NewRecorder()
			own.forward(w, q)
			want := as != "" && header != "Accept"
			if refused := w.Code == http.StatusForbidden; refused != want || (forwarded.Load() == before) != want {
				t.Errorf("--as %q, %s: %d %s", as, header, w.Code, w.Body)
			}
		}
	}
}

// The address of a server may have a path, with and without a slash at its end. Encoded slashes stay encoded.
func TestServersBelowAPath(t *testing.T) {
	var received string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		received = q.Host + " " + q.URL.RequestURI()
	}))
	defer server.Close()
	for _, below := range []string{"", "/", "/k8s/c-1", "/k8s/c-1/", "/k8s%2Fc-1/"} {
		s, err := newSender(&rest.Config{Host: server.URL + below})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/api/v1/pods?limit=1", "/api/v1/nodes/a%2Fb", "/apis/", "/"} {
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			want := server.Listener.Addr().String() + " " + strings.TrimSuffix(below, "/") + path
			if received != want {
				t.Errorf("%s of %q: the server receives %s, want %s", path, below, received, want)
			}
		}
	}
}
