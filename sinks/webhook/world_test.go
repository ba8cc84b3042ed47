package webhook_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/statedir"
	"github.com/keepwatch/keepwatch/sinks/webhook"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

var (
	seedFlag  = flag.Uint64("sinks.seed", 1, "draw changes and faults as a run did that printed this seed; 0 draws anew")
	stepsFlag = flag.Int("sinks.steps", 150, "how many things happen to the sources of a run")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(await.Tests(m))
}

// network is a listener whose connections are in memory, so that time can be synthetic.
type network struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newNetwork() *network { return &network{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.ended:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.ended) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.conns <- server:
		return client, nil
	case <-n.ended:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve serves a handler until the test ends, and returns the transport that reaches it.
func serve(t *testing.T, handler http.Handler) *http.Transport {
	n := newNetwork()
	server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(n) }()
	transport := &http.Transport{DialContext: n.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		<-ended
	})
	return transport
}

var key = []byte("0123456789abcdef0123456789abcdef")

// server folds what it accepts. Many requests fail: before it has accepted the events, or after.
type server struct {
	t      *testing.T
	fold   *sinktest.Fold
	mu     sync.Mutex
	random *rand.Rand
	failed map[string]int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fate := s.random.IntN(24)
	s.mu.Unlock()
	fail := func(name string) { // a mutex that is locked while a handler sleeps would stop the synthetic time
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failed[name]++
	}
	switch fate {
	case 0:
		fail("429 with seconds")
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(429)
		return
	case 1:
		fail("503 with a date")
		w.Header().Set("Retry-After", time.Now().Add(3*time.Second).UTC().Format(http.TimeFormat))
		w.WriteHeader(503)
		return
	case 2:
		fail("500")
		w.WriteHeader(500)
		return
	case 3:
		fail("closed before the request was read")
		hangUp(s.t, w)
		return
	}
	s.accept(r)
	switch fate {
	case 4:
		fail("slower than the timeout")
		select {
		case <-time.After(20 * time.Second):
		case <-r.Context().Done(): // the sender has given up, or the test ends
		}
	case 5:
		fail("closed without an answer")
		hangUp(s.t, w)
	case 6:
		fail("500 although accepted")
		w.WriteHeader(500)
	case 7:
		fail("closed in the middle of the answer")
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte("the beginning"))
		_ = http.NewResponseController(w).Flush()
		hangUp(s.t, w)
	}
}

// hangUp closes the connection.
func hangUp(t *testing.T, w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	conn.Close()
}

// accept verifies the signature and folds the events.
func (s *server) accept(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender has given up
	}
	verifier, err := webhooks.NewWebhookRaw(key)
	if err != nil {
		s.t.Error(err)
	}
	if err := verifier.Verify(body, r.Header); err != nil {
		s.t.Errorf("the signature: %v", err)
	}
	for _, e := range events(s.t, r, body) {
		s.fold.Add(e.Data())
	}
}

// TestWorld folds what a receiver has accepted, and compares it with sources that change, expire and are restored,
// while requests and batches fail.
func TestWorld(t *testing.T) {
	for name, mode := range map[string]webhook.Mode{"structured": webhook.Structured, "binary": webhook.Binary,
		"batched": webhook.Batched} {
		t.Run(name, func(t *testing.T) {
			seed := *seedFlag
			if seed == 0 {
				seed = rand.Uint64()
			}
			report, server := runWorld(t, seed, *stepsFlag, mode, func(r sink.Receiver) sink.Receiver { return r })
			for _, p := range report.Problems {
				t.Error(p)
			}
			t.Logf("seed %d: %d cuts, %d gaps, %d commits failed, %d rewinds, %d events, %d repeated; requests: %v",
				seed, report.Cuts, report.Gaps, report.Failed, report.Epochs, server.fold.Lines, server.fold.Repeated,
				server.failed)
			if *seedFlag == 1 && *stepsFlag >= 150 && (report.Cuts < 10 || report.Gaps < 5 || len(server.failed) < 7 ||
				server.fold.Repeated < 10) {
				t.Error("too little has happened")
			}
		})
	}
}

func runWorld(t *testing.T, seed uint64, steps int, mode webhook.Mode,
	wrap func(sink.Receiver) sink.Receiver) (report sinktest.Report, s *server) {
	t.Helper()
	dir := sinktest.MemoryDir(t)
	synctest.Test(t, func(t *testing.T) {
		s = &server{t: t, fold: &sinktest.Fold{}, random: rand.New(rand.NewPCG(seed, 5)), failed: map[string]int{}}
		receiver, err := webhook.New("http://receiver/", webhook.Options{
			Mode: mode, Key: key, DeadLetters: filepath.Join(dir, "dead"), Timeout: 10 * time.Second, Transport: serve(t, s),
		})
		if err != nil {
			t.Fatal(err)
		}
		torn := &sinktest.Torn{Receiver: wrap(receiver), Random: rand.New(rand.NewPCG(seed, 3)), Every: 15}
		report, err = sinktest.Run(t.Context(), sinktest.Config{
			Sink: statedir.New(filepath.Join(dir, "state"), torn), Tables: s.fold, Repeats: true, Seed: seed, Steps: steps,
			Patience: 30 * time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return report, s
}

// TestMutants checks that the run notices receivers with a planted fault.
func TestMutants(t *testing.T) {
	for name, mutant := range map[string]func(sink.Receiver) sink.Receiver{
		"cursor before rows":   func(r sink.Receiver) sink.Receiver { return &sinktest.Behind{Receiver: r} },
		"a batch that is lost": func(r sink.Receiver) sink.Receiver { return &sinktest.Lossy{Receiver: r} },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 5; seed++ {
				if report, _ := runWorld(t, seed, 60, webhook.Batched, mutant); len(report.Problems) > 0 {
					t.Logf("seed %d: %s", seed, report.Problems[0])
					return
				}
			}
			t.Error("not noticed in 5 runs")
		})
	}
}
