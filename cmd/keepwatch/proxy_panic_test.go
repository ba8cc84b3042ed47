package main

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// written sends what is written to it.
type written chan string

func (w written) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

// A panic while a request is served is logged, with its stack. Failed handshakes and invalid requests are not.
func TestProxyLogsPanics(t *testing.T) {
	for protocol, prefix := range map[string]string{"HTTP/1.1": "http: panic serving ", "HTTP/2.0": "http2: panic serving "} {
		logged := make(written, 10)
		served := httptest.NewUnstartedServer(nil)
		served.Config = newProxyServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a fault of the proxy") }), logged)
		served.EnableHTTP2 = protocol == "HTTP/2.0"
		served.StartTLS()
		if c, err := tls.Dial("tcp", served.Listener.Addr().String(), &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
			c.Close()
			t.Error("an unknown authority is trusted")
		}
		if answer, err := served.Client().Get(served.URL + "?a;b"); err == nil {
			answer.Body.Close()
			t.Errorf("%s: %s", protocol, answer.Status)
		}
		if report := <-logged; !strings.HasPrefix(report, prefix) || !strings.Contains(report, "a fault of the proxy") || !strings.Contains(report, "proxy_panic_test.go") {
			t.Errorf("%s: %s", protocol, report)
		}
		served.Close()
		if len(logged) > 0 {
			t.Errorf("%s: also %s", protocol, <-logged)
		}
	}
}
