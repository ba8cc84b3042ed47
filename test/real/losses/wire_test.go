package losses

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/test/peer"
)

// wire is the connection from the server to its etcd. A test can interrupt it.
type wire struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	isCut bool
	open  map[net.Conn]struct{}
}

func newWire(t *testing.T, to peer.Endpoint) *wire {
	t.Helper()
	listener, err := localhost.Listen()
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, target: strings.TrimPrefix(string(to), "http://"), open: map[net.Conn]struct{}{}}
	w.running.Go(w.accept)
	t.Cleanup(func() {
		listener.Close()
		w.disconnect()
		w.running.Wait()
	})
	return w
}

func (w *wire) address() string { return "http://" + w.listener.Addr().String() }

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.running.Go(func() { w.carry(near) })
	}
}

// carry copies both ways until either end closes, or the wire is interrupted.
func (w *wire) carry(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", w.target)
	if err != nil {
		return
	}
	defer far.Close()
	if !w.hold(near, far) {
		return
	}
	defer w.release(near, far)
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(near, far)
		near.Close()
	}()
	_, _ = io.Copy(far, near)
	far.Close()
	<-back
}

// hold records connections for disconnect. It returns false while the wire is interrupted.
func (w *wire) hold(all ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range all {
		if !w.isCut {
			w.open[c] = struct{}{}
		}
	}
	return !w.isCut
}

func (w *wire) release(all ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range all {
		delete(w.open, c)
	}
}

// disconnect closes all connections, and each new one until restore.
func (w *wire) disconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for c := range w.open {
		c.Close()
	}
}

func (w *wire) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = false
}
