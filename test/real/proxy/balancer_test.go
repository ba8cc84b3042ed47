package proxy

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// balancer distributes connections over servers in turn, as a load balancer that knows which of them are in service. It
// does not look into the connections.
type balancer struct {
	url string

	mu       sync.Mutex
	backends []*backend
	next     int
	open     map[net.Conn]struct{}
}

// backend is a server behind a balancer.
type backend struct {
	address   string
	inService bool
	lag       time.Duration // what the server sends arrives so much later
}

// newBalancer returns a balancer of servers for the duration of the test.
func newBalancer(t testing.TB, hosts ...string) *balancer {
	t.Helper()
	b := &balancer{open: map[net.Conn]struct{}{}}
	var scheme string
	for _, host := range hosts {
		location, err := url.Parse(host)
		if err != nil {
			t.Fatal(err)
		}
		scheme = location.Scheme
		b.backends = append(b.backends, &backend{address: location.Host, inService: true})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.url = scheme + "://" + listener.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { b.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		b.cut()
		serving.Wait()
	})
	return b
}

// setInService says whether a server receives new connections.
func (b *balancer) setInService(i int, in bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends[i].inService = in
}

// setLag delays what a server sends on connections from now on.
func (b *balancer) setLag(i int, lag time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends[i].lag = lag
}

// cut closes all connections. Their clients connect again, to the next server.
func (b *balancer) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.open {
		_ = c.Close()
	}
}

// serve carries a connection until one end closes it.
func (b *balancer) serve(client net.Conn) {
	defer client.Close()
	server, lag := b.dial()
	if server == nil {
		return
	}
	defer server.Close()
	b.track(client, true)
	defer b.track(client, false)
	var back sync.WaitGroup
	back.Go(func() {
		late := delayed(server, lag)
		_, _ = io.Copy(client, late)
		_ = late.Close()
		_ = client.Close()
	})
	_, _ = io.Copy(server, client)
	_ = server.Close()
	back.Wait()
}

func (b *balancer) track(c net.Conn, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if open {
		b.open[c] = struct{}{}
	} else {
		delete(b.open, c)
	}
}

// dial connects to the next server that is in service and accepts the connection.
func (b *balancer) dial() (net.Conn, time.Duration) {
	for range len(b.backends) {
		b.mu.Lock()
		to := *b.backends[b.next%len(b.backends)]
		b.next++
		b.mu.Unlock()
		if !to.inService {
			continue
		}
		if server, err := net.Dial("tcp", to.address); err == nil {
			return server, to.lag
		}
	}
	return nil, 0
}

// delayed returns a reader of what a connection received some time ago. It holds at most one MiB. Once it is closed,
// and the connection has ended, nothing of it stays.
func delayed(from net.Conn, lag time.Duration) io.ReadCloser {
	if lag == 0 {
		return from
	}
	type part struct {
		at   time.Time
		data []byte
	}
	parts := make(chan part, 1024)
	out, in := io.Pipe()
	go func() {
		defer close(parts)
		for {
			data := make([]byte, 1024)
			n, err := from.Read(data)
			if n > 0 {
				parts <- part{time.Now(), data[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer in.Close()
		for p := range parts {
			time.Sleep(time.Until(p.at.Add(lag)))
			_, _ = in.Write(p.data)
		}
	}()
	return out
}
