package serving

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
)

// Listen listens on the address of a flag. Its errors say what to do.
func Listen(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, ListenError(flag, address, err)
	}
	return listener, nil
}

// ListenError returns the error of listening on the address of a flag, with what to do.
func ListenError(flag, address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another process listens on %s: give another address with %s", address, flag)
	case errors.As(err, new(*net.AddrError)), errors.As(err, new(*net.DNSError)):
		return exit.Usage(fmt.Errorf("%s: give a host and a port, like 127.0.0.1:8443, not %q", flag, address))
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// URL returns the address of a listener for clients on this machine.
func URL(listener net.Listener) string {
	address := listener.Addr().String()
	if at, ok := listener.Addr().(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		address = net.JoinHostPort("127.0.0.1", strconv.Itoa(at.Port)) // :: has IPv4, too
	}
	return "https://" + address
}
