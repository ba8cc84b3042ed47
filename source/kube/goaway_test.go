package kube

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http/httptest"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
)

// A graceful shutdown of an HTTP/2 connection ends a watch with Ended; another shutdown is
// a failed connection.
func TestGoAway(t *testing.T) {
	for code, want := range map[http2.ErrCode]keepwatch.FailureKind{
		http2.ErrCodeNo:       keepwatch.Ended,
		http2.ErrCodeInternal: keepwatch.Unreachable,
	} {
		t.Run(code.String(), func(t *testing.T) {
			s := newSource(t, serveGoAway(t, podFrame("ADDED", "a", 6), code), Options{})
			batches, err := drain(open(t, s))
			wantFailure(t, err, want, "watch pods: ", "GOAWAY")
			wantHistory(t, batches, 5, 6, "ADDED a@6")
		})
	}
}

// serveGoAway serves one connection: it answers the first request with text, sends GOAWAY,
// and closes the connection.
func serveGoAway(t *testing.T, text string, code http2.ErrCode) *rest.Config {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-gone })
	go func() {
		defer close(gone)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if err := answerThenGoAway(conn, text, code); err != nil {
			t.Error(err)
		}
	}()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})
	return &rest.Config{Host: "https://" + l.Addr().String(), TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func answerThenGoAway(conn io.ReadWriter, text string, code http2.ErrCode) error {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			var headers bytes.Buffer
			err = hpack.NewEncoder(&headers).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			if err == nil {
				err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: headers.Bytes(),
					EndHeaders: true})
			}
			if err == nil {
				err = framer.WriteData(frame.StreamID, false, []byte(text))
			}
			if err == nil {
				err = framer.WriteGoAway(frame.StreamID, code, nil)
			}
			return err
		}
		if err != nil {
			return err
		}
	}
}
