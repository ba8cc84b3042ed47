package serving

import (
	"io"
	"net"
	"testing"
)

// When there are too many connections, the oldest one without an authenticated request is closed;
// those with one are not.
func TestConnectionsAreBounded(t *testing.T) {
	l := newListener(must(net.Listen("tcp", "127.0.0.1:0"))(t), 3)
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
			t.Error("a connection is open that had to be closed")
		}
	}
	open := func(client, server net.Conn) {
		t.Helper()
		must(io.WriteString(server, "a"))(t)
		must(io.ReadFull(client, make([]byte, 1)))(t)
	}
	first, firstServer := dial()
	l.markAuthenticated(firstServer.RemoteAddr().String())
	second, _ := dial()
	third, thirdServer := dial()
	fourth, fourthServer := dial()
	closed(second)
	open(first, firstServer)
	open(third, thirdServer)
	open(fourth, fourthServer)
	l.markAuthenticated(thirdServer.RemoteAddr().String())
	l.markAuthenticated(fourthServer.RemoteAddr().String())

	// All are authenticated: a new one is closed, and the next one is accepted after another has ended.
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
	firstServer.Close()
	if len(l.conns) != 0 || l.unauthenticated.Len() != 0 {
		t.Errorf("remaining: %d connections, %d unauthenticated", len(l.conns), l.unauthenticated.Len())
	}
}

// Clients whose connections are closed connect again at once, perhaps before the server has stopped listening.
func TestConnectionsAfterTheEndAreClosed(t *testing.T) {
	l := newListener(must(net.Listen("tcp", "127.0.0.1:0"))(t), 3)
	connect := func() net.Conn {
		t.Helper()
		client := must(net.Dial("tcp", l.Addr().String()))(t)
		t.Cleanup(func() { client.Close() })
		return client
	}
	closed := func(client net.Conn) {
		t.Helper()
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("a connection is open that had to be closed")
		}
	}
	before := connect()
	must(l.Accept())(t)
	l.CloseConnections()
	closed(before)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Error("a connection was accepted after the end")
			conn.Close()
		}
	}()
	closed(connect())
	l.Close()
	<-ended
}
