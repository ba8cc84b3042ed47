package child

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
)

// hosts counts the addresses that Address has returned.
var hosts atomic.Uint32

// Address returns an address, with a port, on which a server can listen, and listen again after it has stopped. A port
// of 127.0.0.1 that is free may be taken a moment later, by any server that asks for a free one, or by a connection:
// they begin at such ports, also those of a client that looks for the server. On Linux the host is one that nothing
// else uses.
func Address(t testing.TB) string {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		id := os.Getpid()
		host = fmt.Sprintf("127.%d.%d.%d", 128|id>>8&127, id&255, 1+hosts.Add(1)%254)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
