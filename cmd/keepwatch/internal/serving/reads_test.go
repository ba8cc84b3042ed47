package serving

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// written sends what is written to it.
type written chan string

func (w written) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

// A panic while a request is served is logged, with its stack. Failed handshakes and invalid requests are not.
func TestLogsPanics(t *testing.T) {
	for protocol, prefix := range map[string]string{"HTTP/1.1": "http: panic serving ",
		"HTTP/2.0": "http2: panic serving "} {
		logged := make(written, 10)
		served := httptest.NewUnstartedServer(nil)
		served.Config = newServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic("a fault of the handler")
		}), logged)
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
		if report := <-logged; !strings.HasPrefix(report, prefix) || !strings.Contains(report, "a fault of the handler") ||
			!strings.Contains(report, "reads_test.go") {
			t.Errorf("%s: %s", protocol, report)
		}
		served.Close()
		if len(logged) > 0 {
			t.Errorf("%s: also %s", protocol, <-logged)
		}
	}
}

// A client of HTTP/2 that is frozen, and takes nothing from its connection, is cut off: the write deadlines of its
// streams cannot end them.
func TestCutsOffFrozenClients(t *testing.T) {
	ended := make(chan error, 1)
	served := httptest.NewUnstartedServer(nil)
	served.Config = newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
		for err := error(nil); ; _, err = w.Write(make([]byte, 64<<10)) {
			if err != nil {
				ended <- err
				return
			}
		}
	}), io.Discard)
	if served.Config.HTTP2.WriteByteTimeout != time.Minute {
		t.Errorf("a frozen client is cut off after %v", served.Config.HTTP2.WriteByteTimeout)
	}
	served.Config.HTTP2.WriteByteTimeout = 2 * time.Second
	served.EnableHTTP2 = true
	served.StartTLS()
	defer served.Close()
	trusting := served.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusting.NextProtos = []string{"h2"}
	c, err := tls.Dial("tcp", served.Listener.Addr().String(), trusting)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var request bytes.Buffer
	request.WriteString(http2.ClientPreface)
	frames, headers := http2.NewFramer(&request, nil), new(bytes.Buffer)
	encoder := hpack.NewEncoder(headers)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "proxy"}, {":path", "/"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			t.Fatal(err)
		}
	}
	const window = 1 << 30 // the connection's buffers are full before it is
	for _, err := range []error{
		frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}),
		frames.WriteWindowUpdate(0, window),
		frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndStream: true,
			EndHeaders: true}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Write(request.Bytes()); err != nil {
		t.Fatal(err)
	}
	t.Log(<-ended)
}
