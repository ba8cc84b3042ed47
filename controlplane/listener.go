package controlplane

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
	// ownDescriptors is how many open files are left to etcd, whose logs and database need them to
	// go on, and to the server's own clients and files: about 50, and as many more in reserve.
	ownDescriptors = 100
	// fewestConnections is what is served at least, however low the limit is.
	fewestConnections = 16
)

// trackingListener knows the connections it accepted, so that those which outlast the time to end
// can be cut, and bounds them: when there are too many, the oldest of which nobody has shown a
// credential gives way to a new one. If all have shown one, a new one is closed.
type trackingListener struct {
	net.Listener
	most int
	// closed counts connections that were closed for want of descriptors.
	closed *metrics.CounterVec

	mu    sync.Mutex
	conns map[string]*trackedConn // by the client's address
	// strangers are those whose client has not shown a credential, the oldest first.
	strangers *list.List
}

type trackedConn struct {
	net.Conn
	listener *trackingListener
	stranger *list.Element // nil once the client is known
}

func listen(address string) (*trackingListener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("cannot listen on %s: another process does; choose another port (0 takes a free one)", address)
	}
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return track(l, mostConnections()), nil
}

func track(l net.Listener, most int) *trackingListener {
	closed := metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "keepwatch_connections_closed_total",
		Help:           "Connections that were closed since there were too many: the oldest without a credential (stranger), or if there was none the new one (new).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"which"})
	return &trackingListener{Listener: l, most: most, closed: closed, conns: map[string]*trackedConn{}, strangers: list.New()}
}

// register has the listener counted. It is called before connections are accepted.
func (l *trackingListener) register(registry metrics.KubeRegistry) { registry.MustRegister(l.closed) }

// mostConnections returns how many connections leave room for everything else that needs
// descriptors.
func mostConnections() int {
	limit, known := descriptorLimit()
	switch {
	case !known || limit > math.MaxInt32:
		return math.MaxInt32
	case limit < ownDescriptors+fewestConnections:
		return fewestConnections
	}
	return int(limit) - ownDescriptors
}

// Accept returns a new connection for which there is room.
func (l *trackingListener) Accept() (net.Conn, error) {
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

// add returns the connection that has to be closed for a new one, if any: it may be that itself.
func (l *trackingListener) add(c *trackedConn) (evicted *trackedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.most {
		oldest := l.strangers.Front()
		if oldest == nil {
			l.closed.WithLabelValues("new").Inc()
			return c
		}
		l.closed.WithLabelValues("stranger").Inc()
		evicted = oldest.Value.(*trackedConn)
		l.remove(evicted)
	}
	c.stranger = l.strangers.PushBack(c)
	l.conns[c.address()] = c
	return evicted
}

// remove forgets a connection. It may be called more than once.
func (l *trackingListener) remove(c *trackedConn) {
	if l.conns[c.address()] != c {
		return
	}
	delete(l.conns, c.address())
	l.introduce(c)
}

// known notes that the client at an address has shown a credential.
func (l *trackingListener) known(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.conns[address]; c != nil {
		l.introduce(c)
	}
}

func (l *trackingListener) introduce(c *trackedConn) {
	if c.stranger != nil {
		l.strangers.Remove(c.stranger)
		c.stranger = nil
	}
}

// address is what requests over the connection say about where they come from.
func (c *trackedConn) address() string { return c.RemoteAddr().String() }

func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// cut closes every open connection.
func (l *trackingListener) cut() {
	l.mu.Lock()
	conns := make([]net.Conn, 0, len(l.conns))
	for _, c := range l.conns {
		conns = append(conns, c.Conn)
	}
	l.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}
