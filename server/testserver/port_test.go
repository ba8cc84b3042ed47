package testserver

import (
	"net"
	"testing"
	"time"
)

// TestTakenPort starts a server again while another program has its port for a moment.
func TestTakenPort(t *testing.T) {
	s := New(t)
	s.shutdown()
	other, err := net.Listen("tcp", s.listen)
	if err != nil {
		t.Skipf("another process has the port: %v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { other.Close() })
	s.restart()
}
