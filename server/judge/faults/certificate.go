package faults

import (
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch/internal/localhost"
)

// certificate is the proxy's serving certificate, which can appear expired for a time.
type certificate struct {
	source  localhost.Certificate
	valid   tls.Certificate
	expired tls.Certificate

	mu    sync.Mutex
	until time.Time // up to which it is expired
}

// pairs returns a certificate and an expired one of the same authority.
func pairs(source localhost.Certificate) (*certificate, error) {
	old, err := source.Expired()
	if err != nil {
		return nil, err
	}
	c := &certificate{source: source}
	if c.valid, err = source.Pair(); err != nil {
		return nil, err
	}
	c.expired, err = old.Pair()
	return c, err
}

// hostOf returns the host of an address to listen on, unless it is all addresses.
func hostOf(address string) []string {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" || net.ParseIP(host).IsUnspecified() {
		return nil
	}
	return []string{host}
}

// authority is the certificate's authority, as PEM.
func (c *certificate) authority() []byte { return c.source.Authority }

// expire makes new connections see an expired certificate for a time.
func (c *certificate) expire(length time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if until := time.Now().Add(length); until.After(c.until) {
		c.until = until
	}
}

// get is a tls.Config's GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.until) {
		return &c.expired, nil
	}
	return &c.valid, nil
}
