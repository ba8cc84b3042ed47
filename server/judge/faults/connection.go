package faults

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch/internal/localhost"
)

// listener accepts connections, except while it refuses them. Its address stays the same.
type listener struct {
	addr net.Addr

	mu     sync.Mutex
	change *sync.Cond
	open   net.Listener // nil while connections are refused
	closed bool
	live   map[*connection]struct{}
	// outages is how many outages refuse connections, and down is whether Down does.
	outages int
	down    bool
}

// listen listens on an address, by default an unused port of 127.0.0.1.
func listen(address string) (*listener, error) {
	var open net.Listener
	var err error
	if address == "" {
		open, err = localhost.Listen()
	} else {
		open, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, err
	}
	l := &listener{open: open, addr: open.Addr(), live: make(map[*connection]struct{})}
	l.change = sync.NewCond(&l.mu)
	return l, nil
}

// Accept returns connections that can be frozen. While they are refused, it
// waits.
func (l *listener) Accept() (net.Conn, error) {
	for {
		open, err := l.waitOpen()
		if err != nil {
			return nil, err
		}
		if c, err := open.Accept(); err == nil {
			return l.track(c), nil
		} else if l.is(open) {
			return nil, err
		}
	}
}

func (l *listener) track(c net.Conn) *connection {
	thawed := make(chan struct{})
	close(thawed)
	kept := &connection{Conn: c, closed: make(chan struct{}), gone: make(chan struct{}), thawed: thawed}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[kept] = struct{}{}
	kept.forget = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.live, kept)
	}
	return kept
}

// await returns the open listener, when there is one.
func (l *listener) waitOpen() (net.Listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open == nil && !l.closed {
		l.change.Wait()
	}
	if l.closed {
		return nil, net.ErrClosed
	}
	return l.open, nil
}

func (l *listener) is(open net.Listener) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open == open
}

// setDown refuses connections, or ends that. It does not end an outage.
func (l *listener) setDown(down bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	return l.apply()
}

// beginOutage refuses connections until endOutage is called as often.
func (l *listener) beginOutage() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outages++
	return l.apply()
}

// endOutage ends one outage. After an error reopen tries again.
func (l *listener) endOutage() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outages--
	return l.apply()
}

// reopen accepts connections unless something refuses them.
func (l *listener) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.apply()
}

// apply opens or closes the listener as is wanted. The caller holds mu.
func (l *listener) apply() error {
	switch refused := l.closed || l.down || l.outages > 0; {
	case refused && l.open != nil:
		err := l.open.Close()
		l.open = nil
		return err
	case !refused && l.open == nil:
		open, err := net.Listen(l.addr.Network(), l.addr.String())
		if err != nil {
			return err
		}
		l.open = open
		l.change.Broadcast()
	}
	return nil
}

// resetAll resets all connections, frozen ones too.
func (l *listener) resetAll() {
	l.mu.Lock()
	live := slices.Collect(maps.Keys(l.live))
	l.mu.Unlock()
	for _, c := range live {
		c.reset()
	}
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.change.Broadcast()
	return l.apply()
}

// connection is a TCP connection that can be frozen: then reads and writes wait
// until it thaws or closes.
type connection struct {
	net.Conn
	closed    chan struct{}
	closeOnce sync.Once
	forget    func() // called once, when the connection closes
	// gone is closed when the client has ended the connection, also if it is frozen.
	gone     chan struct{}
	goneOnce sync.Once

	mu          sync.Mutex
	thawed      chan struct{} // closed while the connection is not frozen
	ahead       bool          // whether Read reads ahead
	interrupted bool          // whether a thaw has interrupted that, by a deadline in the past

	// Of Read, which is called by one goroutine at a time: what has arrived while the connection was frozen.
	retained []byte
	end      error // behind the retained data, or nil
}

// maxRetained bounds the data that a frozen connection retains. The end behind more of it is not noticed.
const maxRetained = 64 << 10

func (c *connection) freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.thawed:
		c.thawed = make(chan struct{})
	default:
	}
}

func (c *connection) thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.thawed:
	default:
		close(c.thawed)
		if c.ahead {
			c.interrupted = true
			_ = c.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

// frozen returns a channel that is closed when the connection thaws, or nil if it is not frozen.
func (c *connection) frozen() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.thawed:
		return nil
	default:
		return c.thawed
	}
}

// wait returns when the connection isn't frozen.
func (c *connection) wait() error {
	thawed := c.frozen()
	if thawed == nil {
		return nil
	}
	select {
	case <-thawed:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

// Read retains the data that arrives while the connection is freezing or frozen until it thaws.
func (c *connection) Read(b []byte) (int, error) {
	for {
		c.readAhead()
		if err := c.wait(); err != nil {
			return 0, err
		}
		if len(c.retained) > 0 {
			n := copy(b, c.retained)
			c.retained = c.retained[n:]
			return n, nil
		}
		if err := c.end; err != nil {
			c.end = nil
			return 0, err
		}
		n, err := c.Conn.Read(b)
		if c.frozen() == nil {
			return n, err
		}
		c.retain(b[:n], err)
	}
}

// readAhead reads while the connection is frozen, so that it notices a client that goes: as long as the connection is
// frozen, its exchanges do not end otherwise.
func (c *connection) readAhead() {
	part := make([]byte, 4<<10)
	for c.end == nil && len(c.retained) < maxRetained && c.beginAhead() {
		n, err := c.Conn.Read(part)
		if c.endAhead() && errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil // the thaw's
		}
		c.retain(part[:n], err)
	}
}

// beginAhead returns whether Read reads ahead: the connection is frozen.
func (c *connection) beginAhead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.thawed:
	default:
		c.ahead = true
	}
	return c.ahead
}

// endAhead returns whether a thaw has interrupted Read.
func (c *connection) endAhead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	interrupted := c.interrupted
	if interrupted {
		_ = c.SetReadDeadline(time.Time{})
	}
	c.ahead, c.interrupted = false, false
	return interrupted
}

// retain keeps what was read from a frozen connection.
func (c *connection) retain(part []byte, end error) {
	c.retained, c.end = append(c.retained, part...), end
	if end != nil && !errors.Is(end, os.ErrDeadlineExceeded) {
		c.goneOnce.Do(func() { close(c.gone) })
	}
}

func (c *connection) Write(b []byte) (int, error) {
	if err := c.wait(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *connection) Close() error {
	c.closeOnce.Do(func() {
		close(c.closed)
		c.forget()
	})
	return c.Conn.Close()
}

// reset closes the connection so that the client sees it reset.
func (c *connection) reset() {
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

type connectionKey struct{}

// withConnection is an http.Server's ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c.(*tls.Conn).NetConn())
}

func connectionOf(r *http.Request) *connection {
	return r.Context().Value(connectionKey{}).(*connection)
}
