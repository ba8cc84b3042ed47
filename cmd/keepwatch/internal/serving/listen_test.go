package serving

import (
	"net"
	"strconv"
	"testing"
)

// Clients of this machine find a listener of all addresses, whose own is none.
func TestURL(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", ":0", "0.0.0.0:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		want := "https://127.0.0.1:" + strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
		if got := URL(listener); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
