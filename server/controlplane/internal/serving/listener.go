package serving

import (
	"container/list"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"syscall"

	"k8s.io/component-base/metrics"
)

const (
	// reservedDescriptors is the number of open files that etcd, the server's own clients and its
	// files need: about 50, and as many in reserve.
	reservedDescriptors = 100
	// minConnections is the lowest limit of connections, however low the limit of open files is.
	minConnections = 16
)

// Listener accepts connections up to a limit. Above the limit, a new connection replaces the oldest
// one without an authenticated request. If all have one, the new connection is closed.
type Listener struct {
	net.Listener
	maxConns int
	// closed counts connections that were closed because of the limit.
	closed *metrics.CounterVec

	mu    sync.Mutex
	ended bool                    // CloseConnections was called
	conns map[string]*trackedConn // by the client's address
	// unauthenticated has the connections without an authenticated request, the oldest first.
	unauthenticated *list.List
}

type trackedConn struct {
	net.Conn
	listener        *Listener
	unauthenticated *list.Element // nil after an authenticated request
}

// Listen returns a listener on a TCP address.
func Listen(address string) (*Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, addressInUse(address)
	}
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return newListener(l, maxConnections()), nil
}

// addressInUse is the error of an address that another process uses. It is syscall.EADDRINUSE.
type addressInUse string

func (address addressInUse) Error() string {
	return fmt.Sprintf("cannot listen on %s: another process does; choose another port (0 uses a free one)",
		string(address))
}

func (addressInUse) Unwrap() error { return syscall.EADDRINUSE }

func newListener(l net.Listener, maxConns int) *Listener {
	closed := metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "keepwatch_connections_closed_total",
		Help:           "Connections that were closed because there were too many: the oldest one without an authenticated request (unauthenticated), or the new one if all had one (new).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"which"})
	return &Listener{Listener: l, maxConns: maxConns, closed: closed, conns: map[string]*trackedConn{},
		unauthenticated: list.New()}
}

// Register registers the listener's metric.
func (l *Listener) Register(registry metrics.KubeRegistry) { registry.MustRegister(l.closed) }

// maxConnections returns the limit of open files without the reserved ones.
func maxConnections() int {
	limit, known := descriptorLimit()
	switch {
	case !known || limit > math.MaxInt32:
		return math.MaxInt32
	case limit < reservedDescriptors+minConnections:
		return minConnections
	}
	return int(limit) - reservedDescriptors
}

// Accept returns the next connection within the limit.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tracked := &trackedConn{Conn: conn, listener: l}
		evicted := l.add(tracked)
		if evicted != nil {
			evicted.Conn.Close()
		}
		if evicted != tracked {
			return tracked, nil
		}
	}
}

// add adds a connection. It returns the connection that must be closed for it, if any, which may be c.
func (l *Listener) add(c *trackedConn) (evicted *trackedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return c
	}
	if len(l.conns) >= l.maxConns {
		oldest := l.unauthenticated.Front()
		if oldest == nil {
			l.closed.WithLabelValues("new").Inc()
			return c
		}
		l.closed.WithLabelValues("unauthenticated").Inc()
		evicted = oldest.Value.(*trackedConn)
		l.remove(evicted)
	}
	c.unauthenticated = l.unauthenticated.PushBack(c)
	l.conns[c.address()] = c
	return evicted
}

// remove removes a connection. It has no effect on one that was removed before.
func (l *Listener) remove(c *trackedConn) {
	if l.conns[c.address()] != c {
		return
	}
	delete(l.conns, c.address())
	l.exempt(c)
}

// markAuthenticated records an authenticated request from a client's address.
func (l *Listener) markAuthenticated(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.conns[address]; c != nil {
		l.exempt(c)
	}
}

// exempt keeps a connection from being closed for a new one.
func (l *Listener) exempt(c *trackedConn) {
	if c.unauthenticated != nil {
		l.unauthenticated.Remove(c.unauthenticated)
		c.unauthenticated = nil
	}
}

// address returns the RemoteAddr of requests over the connection.
func (c *trackedConn) address() string { return c.RemoteAddr().String() }

func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// CloseConnections closes all open connections, and those that are accepted later: clients connect again at once,
// and perhaps before the server has stopped listening.
func (l *Listener) CloseConnections() {
	l.mu.Lock()
	l.ended = true
	conns := make([]net.Conn, 0, len(l.conns))
	for _, c := range l.conns {
		conns = append(conns, c.Conn)
	}
	l.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}
