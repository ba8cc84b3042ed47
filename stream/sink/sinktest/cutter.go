package sinktest

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Cutter is a proxy of TCP connections that it breaks, stalls and slows down.
type Cutter struct {
	listener net.Listener
	server   string
	all      sync.WaitGroup

	mu      sync.Mutex
	pairs   map[net.Conn]net.Conn
	left    int           // bytes to the server until the connections break; below 0: any number
	rate    int           // bytes per second that the server receives from a client; 0: any number
	stalled chan struct{} // nothing is forwarded until it is closed; nil: everything is
	closed  bool          // the test has ended
}

// NewCutter returns a proxy of the server at an address, which ends with the test.
func NewCutter(tb testing.TB, server string) *Cutter {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c := &Cutter{listener: l, server: server, pairs: map[net.Conn]net.Conn{}, left: -1}
	c.all.Go(c.serve)
	tb.Cleanup(func() {
		l.Close()
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.Resume()
		c.Cut()
		c.all.Wait()
	})
	return c
}

// Addr returns the address of the proxy.
func (c *Cutter) Addr() string { return c.listener.Addr().String() }

func (c *Cutter) serve() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.server)
		if err != nil {
			client.Close()
			continue
		}
		c.mu.Lock()
		closed := c.closed
		c.pairs[client] = server
		c.mu.Unlock()
		if closed {
			client.Close()
			server.Close()
			return
		}
		c.all.Go(func() { c.forward(client, server) })
		c.all.Go(func() {
			_, _ = io.Copy(client, &stalling{server, c})
			client.Close()
		})
	}
}

// forward forwards what a client sends until the connection ends or breaks.
func (c *Cutter) forward(client, server net.Conn) {
	buffer := make([]byte, 4096)
	passed := time.Now() // the time at which a slow connection has passed what was read
	for {
		n, err := client.Read(buffer)
		passed = c.wait(passed, n)
		allowed := c.allow(n)
		if allowed > 0 {
			_, _ = server.Write(buffer[:allowed])
		}
		if err != nil || allowed < n {
			break
		}
	}
	client.Close()
	server.Close()
	c.mu.Lock()
	delete(c.pairs, client)
	c.mu.Unlock()
}

// allow returns how many of n bytes are forwarded.
func (c *Cutter) allow(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left < 0 {
		return n
	}
	if n = min(n, c.left); n == c.left {
		c.left = -1 // later connections live
	} else {
		c.left -= n
	}
	return n
}

// wait waits while the connections are stalled, and as long as a slow one takes for n bytes more. It returns the time
// at which it has passed them.
func (c *Cutter) wait(passed time.Time, n int) time.Time {
	c.awaitResume()
	c.mu.Lock()
	rate := c.rate
	c.mu.Unlock()
	if now := time.Now(); passed.Before(now) && (rate == 0 || now.Sub(passed) > time.Second) {
		passed = now // it was idle
	}
	if rate > 0 {
		passed = passed.Add(time.Duration(n) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(passed))
	}
	return passed
}

// stalling reads from a server, except while the connections are stalled.
type stalling struct {
	io.Reader
	cutter *Cutter
}

func (s *stalling) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.cutter.awaitResume()
	return n, err
}

// awaitResume waits while the connections are stalled.
func (c *Cutter) awaitResume() {
	c.mu.Lock()
	stalled := c.stalled
	c.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
}

// Slow limits what the server receives from each client to a number of bytes per second. 0 ends the limit.
func (c *Cutter) Slow(rate int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rate = rate
}

// Stall forwards nothing until Resume: connections stay open, and nobody answers.
func (c *Cutter) Stall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stalled == nil {
		c.stalled = make(chan struct{})
	}
}

// Resume ends Stall.
func (c *Cutter) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stalled != nil {
		close(c.stalled)
		c.stalled = nil
	}
}

// Cut breaks all connections.
func (c *Cutter) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for client, server := range c.pairs {
		client.Close()
		server.Close()
	}
}

// CutWithin breaks the connection that sends a random byte among the next ones, in the middle of a piece for example.
func (c *Cutter) CutWithin(bytes int, random *rand.Rand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = random.IntN(bytes)
}
