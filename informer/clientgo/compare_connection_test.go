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
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// proxy forwards connections between clients and a server, and can lose them.
type proxy struct {
	net.Listener
	to        string
	forwarded atomic.Int64 // bytes to clients

	mu      sync.Mutex
	open    map[net.Conn]net.Conn // by client's end
	frozen  chan struct{}         // closed once open connections forward nothing
	serving sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &proxy{Listener: listener, to: to, open: map[net.Conn]net.Conn{}, frozen: make(chan struct{})}
	l.serving.Go(l.serve)
	t.Cleanup(func() {
		_ = l.Close()
		l.reset()
		l.serving.Wait()
	})
	return l
}

func (l *proxy) serve() {
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
		l.serving.Go(func() { l.forward(client, server, frozen, nil) })
		l.serving.Go(func() { l.forward(server, client, frozen, &l.forwarded) })
	}
}

// forward copies bytes one way. When one end is closed, it closes the other.
func (l *proxy) forward(from, to net.Conn, frozen <-chan struct{}, count *atomic.Int64) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-frozen:
			_, _ = io.Copy(io.Discard, from) // without an error for either end
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

// reset resets the open connections.
func (l *proxy) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for client, server := range l.open {
		_ = client.(*net.TCPConn).SetLinger(0)
		_ = client.Close()
		_ = server.Close()
	}
	clear(l.open)
}

// freeze makes the open connections half-open: nothing arrives, and neither end sees an error.
// New connections work.
func (l *proxy) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.frozen)
	l.frozen = make(chan struct{})
}

// After a lost connection over TLS and HTTP/2 a new watch resumes, without a list. The transport
// detects a half-open connection by pings, which client-go sends after 30 s of silence, and
// this test after one.
func TestCompareLostConnections(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	for _, scenario := range []struct {
		name string
		lose func(t *testing.T, s *podtest.Server, l *proxy)
	}{
		{"reset", func(_ *testing.T, _ *podtest.Server, l *proxy) { l.reset() }},
		{"reset in the middle of a frame", func(t *testing.T, s *podtest.Server, l *proxy) {
			before := l.forwarded.Load()
			s.Inject(`{"type":"MODIFIED","object":{"kind":"Pod","metadata":{`)
			podtest.Eventually(t, func() bool { return l.forwarded.Load() > before }, func() string {
				return "the frame does not arrive"
			})
			l.reset()
		}},
		{"half-open", func(_ *testing.T, _ *podtest.Server, l *proxy) { l.freeze() }},
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
				t.Parallel()
				s := podtest.NewSecureServer(t, podtest.Pod("a"), podtest.Pod("b"))
				l := newProxy(t, s.Listener.Addr().String())
				cfg := s.Config()
				cfg.Host = "https://" + l.Addr().String()
				cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
				inf := by.build(cfg)
				var events recorder
				registration := handle(t, inf, &events)
				stop := podtest.Run(t, inf)
				podtest.WaitForSync(t, inf, registration)
				events.wantSome(t, "add! a@101", "add! b@102") // client-go lists in no order
				events.reset()
				lists, streams, _ := s.Counts()
				scenario.lose(t, s, l)
				s.Put(podtest.Pod("c"))
				events.wantSome(t, "add c@103")
				listsNow, streamsNow, watches := s.Counts()
				o := outcome{listsNow - lists, streamsNow - streams, events.all()}
				t.Logf("%v; %d watches", o, watches)
				if !s.OnlyHTTP2() {
					t.Error("a request came by another protocol than HTTP/2")
				}
				if by.name != "client-go" && (o.lists+o.streams != 0 || !slices.Equal(o.events, []string{"add c@103"})) {
					t.Errorf("keepwatch: %v", fmt.Sprint(o))
				}
				stop()
			})
		}
	}
}
