package losses

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/keepwatch/keepwatch/test/localhost"
	"github.com/keepwatch/keepwatch/test/peer"
)

// wire is the way from the server to its etcd. It can be cut.
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
		w.cut()
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

// carry copies both ways until either end closes, or the wire is cut.
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

// hold notes connections for cut; false if there is no wire.
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

// cut closes all connections, and each new one until mend.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for c := range w.open {
		c.Close()
	}
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = false
}
