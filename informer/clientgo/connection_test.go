package clientgo_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/informer/internal/podtest"
)

// line is a network between clients and a server, whose connections can be lost.
type line struct {
	net.Listener
	to     string
	passed atomic.Int64 // bytes to clients

	mu      sync.Mutex
	open    map[net.Conn]net.Conn // by client's end
	frozen  chan struct{}         // closed when what is open passes nothing any more
	serving sync.WaitGroup
}

func newLine(t *testing.T, to string) *line {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{Listener: listener, to: to, open: map[net.Conn]net.Conn{}, frozen: make(chan struct{})}
	l.serving.Go(l.serve)
	t.Cleanup(func() {
		_ = l.Close()
		l.cut()
		l.serving.Wait()
	})
	return l
}

func (l *line) serve() {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		l.mu.Lock()
		l.open[client] = server
		frozen := l.frozen
		l.mu.Unlock()
		l.serving.Go(func() { l.pass(client, server, frozen, nil) })
		l.serving.Go(func() { l.pass(server, client, frozen, &l.passed) })
	}
}

// pass carries bytes one way, and when one end is closed, closes the other.
func (l *line) pass(from, to net.Conn, frozen <-chan struct{}, count *atomic.Int64) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-frozen:
			_, _ = io.Copy(io.Discard, from) // and nobody is told
			return
		default:
		}
		if count != nil {
			count.Add(int64(n))
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// cut resets what is open.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for client, server := range l.open {
		_ = client.(*net.TCPConn).SetLinger(0)
		_ = client.Close()
		_ = server.Close()
	}
	clear(l.open)
}

// freeze leaves what is open half-open: both ends believe in it, and nothing
// arrives. New connections are good.
func (l *line) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.frozen)
	l.frozen = make(chan struct{})
}

// A connection over TLS and HTTP/2 that is lost is no reason to list: what was not
// seen comes by a new watch. A half-open one is found out by the transport's pings,
// which client-go sends after 30 s of silence, and here after one.
func TestBesideLostConnections(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	for _, scenario := range []struct {
		name string
		lose func(t *testing.T, s *podtest.Server, l *line)
	}{
		{"reset", func(_ *testing.T, _ *podtest.Server, l *line) { l.cut() }},
		{"reset in the middle of a frame", func(t *testing.T, s *podtest.Server, l *line) {
			before := l.passed.Load()
			s.Inject(`{"type":"MODIFIED","object":{"kind":"Pod","metadata":{`)
			podtest.Eventually(t, func() bool { return l.passed.Load() > before }, func() string { return "the frame does not arrive" })
			l.cut()
		}},
		{"half-open", func(_ *testing.T, _ *podtest.Server, l *line) { l.freeze() }},
	} {
		for _, by := range []struct {
			name  string
			build func(*rest.Config) cache.SharedIndexInformer
		}{
			{"client-go", func(cfg *rest.Config) cache.SharedIndexInformer {
				return cache.NewSharedIndexInformer(podsThrough(cfg), &corev1.Pod{}, 0, nil)
			}},
			{"hook", func(cfg *rest.Config) cache.SharedIndexInformer {
				return clientgo.NewSharedIndexInformer(podsThrough(cfg), &corev1.Pod{}, 0, nil)
			}},
			{"direct", func(cfg *rest.Config) cache.SharedIndexInformer {
				cfg, direct := clientgo.Direct(cfg)
				group := clientgo.NewGroup(direct)
				return group.NewSharedIndexInformer(podsThrough(cfg), &corev1.Pod{}, 0, nil)
			}},
		} {
			t.Run(scenario.name+"/"+by.name, func(t *testing.T) {
				s := podtest.NewSecureServer(t, podtest.Pod("a"), podtest.Pod("b"))
				l := newLine(t, s.Listener.Addr().String())
				cfg := s.Config()
				cfg.Host = "https://" + l.Addr().String()
				cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
				inf := by.build(cfg)
				var told recorder
				registration := handle(t, inf, &told)
				stop := podtest.Run(t, inf)
				podtest.WaitForSync(t, inf, registration)
				told.hears(t, "add! a@101", "add! b@102") // client-go lists in no order
				told.forget()
				lists, streams, _ := s.Counts()
				scenario.lose(t, s, l)
				s.Put(podtest.Pod("c"))
				told.hears(t, "add c@103")
				listsNow, streamsNow, watches := s.Counts()
				o := outcome{listsNow - lists, streamsNow - streams, told.told()}
				t.Logf("%v; %d watches", o, watches)
				if !s.OnlyHTTP2() {
					t.Error("a request came by another protocol than HTTP/2")
				}
				if by.name != "client-go" && (o.lists+o.streams != 0 || !slices.Equal(o.told, []string{"add c@103"})) {
					t.Errorf("ours came to %v", fmt.Sprint(o))
				}
				stop()
			})
		}
	}
}
