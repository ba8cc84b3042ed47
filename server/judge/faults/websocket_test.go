package faults

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// newWebSocketCluster starts a server that answers an upgrade with events 1 to n and a close frame.
func newWebSocketCluster(t *testing.T, n int) *rest.Config {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-WebSocket-Extensions") != "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		for i := range n {
			_, _ = conn.Write(messages{}.wrap([]byte(strings.TrimSpace(modified(i + 1)))))
		}
		_, _ = conn.Write(messages{}.end())
		_, _ = io.Copy(io.Discard, conn)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: certificatePEM(server.Certificate())}}
}

// readWebSocket opens a watch by a raw connection, and returns its messages up to a close frame, or an error.
func readWebSocket(t *testing.T, p *Proxy) (events []string, err error) {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(p.Config().Host, "https://"), tlsConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", watchPods)
	if err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	for {
		whole, message, err := messages{}.read(reader)
		if err != nil {
			return events, err
		}
		if whole[0] == closeFrame {
			return events, nil
		}
		events = append(events, string(message)+"\n")
	}
}

func TestWebSocketFaults(t *testing.T) {
	a, b, c := modified(1), modified(2), modified(3)
	tests := []struct {
		rule   string
		want   []string
		broken bool
	}{
		{"{fault: slow, rate: 1000000}", []string{a, b, c}, false},
		{"{fault: skip, after: {events: 1}}", []string{a, c}, false},
		{"{fault: reorder}", []string{b, a, c}, false},
		{"{fault: repeat, after: {events: 1}}", []string{a, a, b, c}, false},
		{"{fault: end, after: {events: 2}}", []string{a, b}, false},
		{"{fault: cut, after: {events: 2}}", []string{a, b}, true},
		{"{fault: tear, after: {events: 1}}", []string{a}, true},
		{"{fault: reset, after: {events: 1}}", nil, true},
		{"{fault: oversized, after: {events: 2}, size: 70000}", []string{a, b, strings.TrimSuffix(c, "}\n") +
			strings.Repeat(" ", 70000-len(c)+1) + "}\n"}, false},
	}
	for _, test := range tests {
		p := New(t, newWebSocketCluster(t, 3), parsePlan(t, false, "- "+test.rule))
		got, err := readWebSocket(t, p)
		if (err != nil) != test.broken || test.want != nil && strings.Join(got, "") != strings.Join(test.want, "") {
			t.Errorf("%s: got %.200q, %v; want %.200q, broken %v", test.rule, got, err, test.want, test.broken)
		}
	}
}

func TestWebSocketStatusAndErrorEvent(t *testing.T) {
	p := New(t, newWebSocketCluster(t, 2), parsePlan(t, false, `
- {fault: status, status: Expired, match: {nth: [1]}}
- {fault: error-event, status: Expired, after: {events: 1}}
`))
	if _, err := readWebSocket(t, p); err == nil || err.Error() != "status 410" {
		t.Errorf("got %v", err)
	}
	events, err := readWebSocket(t, p)
	if err != nil || len(events) != 2 || !strings.Contains(events[1], `"type":"ERROR"`) ||
		!strings.Contains(events[1], `"code":410`) {
		t.Errorf("got %q, %v", events, err)
	}
	if got := p.Transcript()[1]; got.Code != 101 || got.Frames != 2 || len(got.Faults) != 1 {
		t.Errorf("transcript: %v", got)
	}
}

func TestWebSocketCloseEndsAStall(t *testing.T) {
	p := New(t, newWebSocketCluster(t, 2), parsePlan(t, false, "- {fault: stall, after: {events: 1}}"))
	ended := make(chan error, 1)
	go func() {
		events, err := readWebSocket(t, p)
		if len(events) != 1 {
			err = errors.Join(err, fmt.Errorf("%d events, want 1", len(events)))
		}
		ended <- err
	}()
	waitForEntries(t, p, func(e []Entry) bool { return len(e) == 1 && len(e[0].Faults) == 1 })
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil || strings.Contains(err.Error(), "want 1") {
		t.Errorf("the client got %v, want a reset", err)
	}
}
