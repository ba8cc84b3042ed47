package sinktest

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Cutter is a proxy of TCP connections that it breaks.
type Cutter struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	pairs map[net.Conn]net.Conn
	left  int // bytes to the server until the connections break; below 0: any number
	all   sync.WaitGroup
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
		c.pairs[client] = server
		c.mu.Unlock()
		c.all.Go(func() { c.forward(client, server) })
		c.all.Go(func() {
			_, _ = io.Copy(client, server)
			client.Close()
		})
	}
}

// forward forwards what a client sends until the connection ends or breaks.
func (c *Cutter) forward(client, server net.Conn) {
	buffer := make([]byte, 4096)
	for {
		n, err := client.Read(buffer)
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
