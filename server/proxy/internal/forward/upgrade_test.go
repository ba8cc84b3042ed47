package forward

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// upgraded returns the answer to a request that upgrades its connection.
func upgraded(t *testing.T, through http.Handler) (code int) {
	q := httptest.NewRequestWithContext(t.Context(), http.MethodPost,
		"/api/v1/namespaces/default/pods/web/exec?command=id", nil)
	q.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "Authorization": {"Bearer client's"}}
	w := httptest.NewRecorder()
	through.ServeHTTP(w, q)
	return w.Code
}

// refusing is a server that refuses all requests, which it counts.
func refusing(t *testing.T) (server *httptest.Server, authority []byte, received *atomic.Int64) {
	received = &atomic.Int64{}
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		received.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // failed handshakes
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), received
}

// anotherAuthority returns an authority that has not issued the certificates of net/http/httptest.
func anotherAuthority(t *testing.T) []byte {
	authority, _, err := cert.GenerateSelfSignedCertKey("elsewhere", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// A server receives no credentials before its certificate has been verified, also if the configuration names no
// authority: then those of the system are meant.
func TestUpgradesVerifyTheServer(t *testing.T) {
	server, _, received := refusing(t)
	for name, config := range map[string]*rest.Config{
		"clients' tokens":   {Host: server.URL},
		"the proxy's token": {Host: server.URL, BearerToken: "the proxy's"},
	} {
		s, err := newSender(config)
		if err != nil {
			t.Fatal(err)
		}
		if code := upgraded(t, s); code != http.StatusServiceUnavailable || received.Load() > 0 {
			t.Errorf("%s: %d, %d requests received", name, code, received.Load())
		}
	}
}

// Upgrades follow the file of the server's authorities, as other requests do: client-go reads it every 5 minutes.
func TestUpgradesFollowTheAuthority(t *testing.T) {
	server, authority, _ := refusing(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, anotherAuthority(t), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s, err := newSender(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: file}})
		if err != nil {
			t.Fatal(err)
		}
		defer utilnet.CloseIdleConnectionsFor(s.upgrades)
		if code := upgraded(t, s); code != http.StatusServiceUnavailable {
			t.Errorf("with another authority: %d", code)
		}
		if err := os.WriteFile(file, authority, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Minute)
		if code := upgraded(t, s); code != http.StatusForbidden {
			t.Errorf("with the server's authority: %d", code)
		}
	})
}

// Upgrades take the way to the server that the configuration names: its proxy-url.
func TestUpgradesGoThroughTheProxy(t *testing.T) {
	server, authority, _ := refusing(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var connected atomic.Int64
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go tunnel(client, &connected)
		}
	}()
	s, err := newSender(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: authority},
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: listener.Addr().String()})})
	if err != nil {
		t.Fatal(err)
	}
	defer utilnet.CloseIdleConnectionsFor(s.upgrades)
	if code := upgraded(t, s); code != http.StatusForbidden || connected.Load() != 1 {
		t.Errorf("%d, through %d connections of the proxy", code, connected.Load())
	}
}

// tunnel serves one CONNECT.
func tunnel(client net.Conn, connected *atomic.Int64) {
	defer client.Close()
	q, err := http.ReadRequest(bufio.NewReader(client))
	if err != nil || q.Method != http.MethodConnect {
		return
	}
	server, err := net.Dial("tcp", q.Host)
	if err != nil {
		return
	}
	defer server.Close()
	connected.Add(1)
	fmt.Fprint(client, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// A connection that has been upgraded carries what both sides send, until one ends it.
func TestUpgradedConnectionsCarryBothWays(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "SPDY/3.1")
		w.WriteHeader(http.StatusSwitchingProtocols)
		connection, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		line, _ := both.ReadString('\n')
		_, _ = both.WriteString("echo of " + line)
		_ = both.Flush()
		_, _ = both.ReadString('\n') // until the client ends the connection
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	s, err := newSender(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		defer close(ended)
		s.ServeHTTP(w, q)
	}))
	defer proxy.Close()
	client, err := net.Dial("tcp", proxy.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fmt.Fprint(client, "POST /exec HTTP/1.1\r\nHost: proxy\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	answers := bufio.NewReader(client)
	answer, err := http.ReadResponse(answers, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != "SPDY/3.1" {
		t.Fatal(answer, err)
	}
	fmt.Fprint(client, "id\n")
	if line, err := answers.ReadString('\n'); line != "echo of id\n" {
		t.Errorf("%q, %v", line, err)
	}
	client.Close()
	<-ended
}
