// Package localhost has a port and a certificate for a server on 127.0.0.1, and recognizes the addresses of this machine.
package localhost

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// The ports of this package are below the range from which systems choose client ports: no outgoing connection uses one
// while its server is stopped, and none connects to itself.
const low, high = 20000, 32000

// tried counts ports. A process takes them in order, and processes begin at places that are far from each other: a server
// that is stopped for a while finds its port free again, which another one would get sooner or later if they were drawn.
var tried = newCounter(uint32(os.Getpid()) * 601)

func newCounter(first uint32) *atomic.Uint32 {
	c := new(atomic.Uint32)
	c.Store(first)
	return c
}

// Listen listens on an unused port of 127.0.0.1, which this process gets once in 12,000 calls.
func Listen() (net.Listener, error) {
	var err error
	for range 1000 {
		var l net.Listener
		l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", low+tried.Add(1)%(high-low)))
		if err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port between %d and %d: %w", low, high, err)
}

// Is reports whether a server, HOST or HOST:PORT, is on this machine: what is sent to it without encryption does not leave it.
func Is(server string) bool {
	host, _, err := net.SplitHostPort(server)
	if err != nil {
		host = strings.Trim(server, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// FreePort returns a port that Listen could listen on, for another process. Until that
// process listens, a third one may use it.
func FreePort() (int, error) {
	l, err := Listen()
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// Certificate is a serving certificate for 127.0.0.1, ::1 and localhost, of an authority of its own, as PEM.
// The two are not one: rustls accepts no server whose certificate is an authority's.
type Certificate struct {
	Authority, Cert, Key []byte

	authority    *x509.Certificate
	authorityKey *ecdsa.PrivateKey
}

// NewCertificate makes a certificate that is valid for a year, also for other hosts.
func NewCertificate(hosts ...string) (Certificate, error) {
	authority, authorityKey, authorityPEM, err := newAuthority()
	if err != nil {
		return Certificate{}, err
	}
	key, keyPEM, err := NewKey()
	if err != nil {
		return Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "keepwatch"},
		NotBefore:    authority.NotBefore, NotAfter: authority.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	cert, err := sign(template, authority, key.Public(), authorityKey)
	return Certificate{
		Authority: authorityPEM, Cert: cert, Key: keyPEM,
		authority: authority, authorityKey: authorityKey,
	}, err
}

// newAuthority makes an authority that is valid for a year, also as PEM.
func newAuthority() (*x509.Certificate, *ecdsa.PrivateKey, []byte, error) {
	key, _, err := NewKey()
	if err != nil {
		return nil, nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "keepwatch authority"},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageCertSign,
		IsCA:     true, BasicConstraintsValid: true,
	}
	text, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, nil, nil, err
	}
	block, _ := pem.Decode(text)
	authority, err := x509.ParseCertificate(block.Bytes)
	return authority, key, text, err
}

// Expired returns a certificate of the same authority, key and hosts that expired an hour ago.
func (c Certificate) Expired() (Certificate, error) {
	pair, err := c.Pair()
	if err != nil {
		return Certificate{}, err
	}
	template := *pair.Leaf
	template.SerialNumber = serial()
	template.NotBefore, template.NotAfter = time.Now().AddDate(0, 0, -1), time.Now().Add(-time.Hour)
	expired := c
	expired.Cert, err = sign(&template, c.authority, pair.Leaf.PublicKey, c.authorityKey)
	return expired, err
}

// serial returns a number that other certificates hardly have.
func serial() *big.Int { return new(big.Int).SetUint64(mathrand.Uint64() >> 1) }

// sign makes a certificate of a public key, as PEM.
func sign(template, authority *x509.Certificate, public any, key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, authority, public, key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// Pair is the certificate for a Go server.
func (c Certificate) Pair() (tls.Certificate, error) { return tls.X509KeyPair(c.Cert, c.Key) }

// NewKey makes a private key, also as PEM.
func NewKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}
