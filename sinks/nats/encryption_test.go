package nats_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/sinks/nats"
	"github.com/keepwatch/keepwatch/sinks/testonly/natstest"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// elsewhere returns an address of this machine's server that does not say so: to connect to 0.0.0.0 is to connect to
// this machine.
func elsewhere(address string) string { return strings.Replace(address, "127.0.0.1", "0.0.0.0", 1) }

// downgraded is a server that says it needs no TLS, and returns what a client sends it.
func downgraded(t *testing.T) (address string, received func() string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	texts := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			texts <- "" // nobody has connected
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, `INFO {"server_id":"x","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576}`+"\r\n")
		text := make([]byte, 4096) // a client sends its password in its first packet
		n, _ := io.ReadAtLeast(conn, text, 1)
		texts <- string(text[:n])
	}()
	return l.Addr().String(), func() string {
		l.Close()
		return <-texts
	}
}

// TestNoPasswordInClear connects to a server that offers no TLS: no password leaves this machine, and with tls=true
// none is sent at all.
func TestNoPasswordInClear(t *testing.T) {
	t.Parallel()
	for query, local := range map[string]bool{"": false, "?tls=true": true, "?tls=true&replicas=1": false} {
		address, received := downgraded(t)
		if !local {
			address = elsewhere(address)
		}
		_, err := newSink(t, "nats://u:pa55word@"+address+"/A"+query).Open(t.Context(), sinktest.Streams())
		if text := received(); strings.Contains(text, "pa55word") {
			t.Errorf("%s %s: it receives %q", address, query, text)
		}
		if err == nil || errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "TLS is required") ||
			strings.Contains(err.Error(), "pa55word") {
			t.Errorf("%s %s: %v", address, query, err)
		}
	}
	_, err := nats.New("nats://u:pa55word@nats.example.com,127.0.0.1/A?tls=false", nats.Options{})
	if err == nil || !strings.Contains(err.Error(), "the password would be sent without encryption") {
		t.Error(err)
	}
}

// TestTLS logs in to a server with TLS, whose certificate is verified.
func TestTLS(t *testing.T) {
	t.Parallel()
	pair, err := localhost.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name string, text []byte) string {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	authority, certificate, key := put("ca.crt", pair.Authority), put("tls.crt", pair.Cert), put("tls.key", pair.Key)
	server := natstest.Start(t,
		fmt.Sprintf("tls { cert_file: %q, key_file: %q }\nauthorization { user: sync, password: pa55word }", certificate,
			key))
	address := "nats://sync:pa55word@" + server.Addr() + "/TLS"
	s := newSink(t, address+"?ca="+authority)
	open(t, s)
	_, err = newSink(t, address+"?tls=true").Open(t.Context(), sinktest.Streams()) // of no authority that the system knows
	if err == nil || errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "TLS is required") {
		t.Error(err)
	}
}
