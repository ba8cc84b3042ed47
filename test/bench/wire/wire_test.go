package wire

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

func TestMain(m *testing.M) { os.Exit(await.Tests(m)) }

// serve serves handler over HTTP/2 and TLS, and connects to it.
func serve(t *testing.T, handler http.HandlerFunc) (*Conn, *httptest.Server) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := Dial(ctx, Endpoint{Address: server.Listener.Addr().String(), TLS: &tls.Config{RootCAs: roots},
		Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = conn.Run()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	return conn, server
}

func get(t *testing.T, conn *Conn, r Request) *Answer {
	t.Helper()
	answer, err := conn.Get(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// A body larger than all windows arrives whole, for the request that was sent.
func TestBody(t *testing.T) {
	const size = 3 * answerWindow
	body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	conn, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.URL.Path != "/list" || r.URL.RawQuery != "limit=5" ||
			r.Header.Get("Accept") != "application/json" ||
			r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("Accept-Encoding") != "gzip" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Encoding", "gzip") // if the client accepts it
		_, _ = w.Write(body)
	})
	for range 2 {
		digest, length := sha256.New(), 0
		answer := get(t, conn, Request{Path: "/list?limit=5", Accept: "application/json", Gzip: true, Data: func(p []byte) {
			length += len(p)
			digest.Write(p)
		}})
		status, err := answer.Status(t.Context())
		if err != nil || status != "200" || !answer.Compressed() {
			t.Fatalf("%s, %v, compressed: %v", status, err, answer.Compressed())
		}
		if err := answer.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := sha256.Sum256(body); !bytes.Equal(digest.Sum(nil), want[:]) {
			t.Errorf("%d bytes came, and not those of the body", length)
		}
	}
}

// As many answers as a connection may have open get each their own bytes.
func TestManyAnswers(t *testing.T) {
	conn, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for range 100 {
			_, _ = io.WriteString(w, r.URL.Path+"\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	var bodies [Streams]strings.Builder
	var answers [Streams]*Answer
	for i := range answers {
		answers[i] = get(t, conn, Request{Path: "/" + strconv.Itoa(i), Data: func(p []byte) { bodies[i].Write(p) }})
	}
	for i, answer := range answers {
		if err := answer.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := strings.Repeat(fmt.Sprintf("/%d\n", i), 100); bodies[i].String() != want {
			t.Errorf("answer %d is %q", i, bodies[i].String())
		}
	}
}

func TestCutOff(t *testing.T) {
	conn, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	answer := get(t, conn, Request{Path: "/", Data: func([]byte) {}})
	if status, err := answer.Status(t.Context()); status != "200" {
		t.Errorf("status %q, %v", status, err)
	}
	if err := answer.Wait(t.Context()); err == nil {
		t.Error("an answer that was cut off is whole")
	}
}

func TestCancel(t *testing.T) {
	conn, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/whole" {
			return
		}
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	answer := get(t, conn, Request{Path: "/", Data: func([]byte) { cancel() }})
	if err := answer.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled with %v", err)
	}
	if err := get(t, conn, Request{Path: "/whole"}).Wait(t.Context()); err != nil {
		t.Errorf("the connection's next answer: %v", err)
	}
}

func TestConnectionEnds(t *testing.T) {
	conn, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	answer := get(t, conn, Request{Path: "/"})
	if _, err := answer.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.CloseClientConnections()
	if err := answer.Wait(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("ended with %v", err)
	}
	if _, err := conn.Get(Request{Path: "/"}); !errors.Is(err, errClosed) {
		t.Errorf("asked again: %v", err)
	}
}

// The count does not depend on where a text is split.
func TestCounters(t *testing.T) {
	text := []byte("mar\x00markmark\nma\nrk marmark")
	blocks := []byte("\x00\x00\x00\x03mar\x00\x00\x00\x00\x00\x00\x00\x01k\x00\x00\x00\x05mark")
	for _, test := range []struct {
		name  string
		text  []byte
		count func() Counter
		want  int
	}{
		{"lines", text, func() Counter { return Lines{} }, 2},
		{"blocks", blocks, func() Counter { return &Blocks{} }, 3},
		{"marks", text, func() Counter { return NewMarks("mark") }, 3},
	} {
		for size := 1; size <= len(test.text); size++ {
			counter, got := test.count(), 0
			for rest := test.text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				got += counter.Count(rest[:min(size, len(rest))])
			}
			if got != test.want {
				t.Errorf("%s: %d in pieces of %d, want %d", test.name, got, size, test.want)
			}
		}
	}
}
