package bench

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

// balance listens at an address before several API servers and forwards a connection to
// the first one that accepts it. It returns a URL. It ends with the benchmark.
func balance(b *testing.B, servers ...*peer.Server) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { forward(client, servers) })
		}
	})
	b.Cleanup(func() {
		_ = listener.Close()
		passing.Wait()
	})
	return "https://" + listener.Addr().String()
}

// pass carries a connection until one end closes it.
func forward(client net.Conn, servers []*peer.Server) {
	defer client.Close()
	for _, s := range servers {
		address, err := url.Parse(s.Config().Host)
		if err != nil {
			continue
		}
		server, err := net.Dial("tcp", address.Host)
		if err != nil {
			continue
		}
		defer server.Close()
		var back sync.WaitGroup
		back.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		})
		_, _ = io.Copy(server, client)
		_ = server.Close()
		back.Wait()
		return
	}
}
