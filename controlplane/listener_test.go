package controlplane

import (
	"io"
	"net"
	"testing"
)

// When there are too many connections, the oldest without a credential gives way; those with one
// do not.
func TestConnectionsAreBounded(t *testing.T) {
	l := track(must(net.Listen("tcp", "127.0.0.1:0"))(t), 3)
	defer l.Close()
	dial := func() (client, server net.Conn) {
		t.Helper()
		client = must(net.Dial("tcp", l.Addr().String()))(t)
		t.Cleanup(func() { client.Close() })
		server = must(l.Accept())(t)
		t.Cleanup(func() { server.Close() })
		return client, server
	}
	closed := func(client net.Conn) {
		t.Helper()
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("a connection is open that had to give way")
		}
	}
	open := func(client, server net.Conn) {
		t.Helper()
		must(io.WriteString(server, "a"))(t)
		must(io.ReadFull(client, make([]byte, 1)))(t)
	}
	first, known := dial()
	l.known(known.RemoteAddr().String())
	second, _ := dial()
	third, thirdServer := dial()
	fourth, fourthServer := dial()
	closed(second)
	open(first, known)
	open(third, thirdServer)
	open(fourth, fourthServer)
	l.known(thirdServer.RemoteAddr().String())
	l.known(fourthServer.RemoteAddr().String())

	// All are known: a new one is closed, and the next one served once there is room.
	refused := must(net.Dial("tcp", l.Addr().String()))(t)
	defer refused.Close()
	accepted := make(chan net.Conn)
	go func() {
		conn, _ := l.Accept()
		accepted <- conn
	}()
	closed(refused)
	fourthServer.Close()
	later := must(net.Dial("tcp", l.Addr().String()))(t)
	defer later.Close()
	server := <-accepted
	open(later, server)
	server.Close()
	thirdServer.Close()
	known.Close()
	if len(l.conns) != 0 || l.strangers.Len() != 0 {
		t.Errorf("left: %d connections, %d of strangers", len(l.conns), l.strangers.Len())
	}
}
