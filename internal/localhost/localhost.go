// Package localhost has a port and a certificate for a server on 127.0.0.1, and recognizes the addresses of this
// machine.
package localhost

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
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

// tried counts ports. A process takes them in order, and processes begin at places that are far from each other: a
// server that is stopped for a while finds its port free again, which another one would get sooner or later if they
// were drawn.
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

// Is reports whether a server, HOST or HOST:PORT, is on this machine: what is sent to it without encryption does not
// leave it.
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

// Authority signs serving certificates.
type Authority struct {
	Cert, Key []byte // as PEM

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that is valid for ten years.
func NewAuthority() (Authority, error) {
	key, keyPEM, err := NewKey()
	if err != nil {
		return Authority{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "keepwatch authority"},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageCertSign,
		IsCA:     true, BasicConstraintsValid: true,
	}
	text, err := sign(template, template, key.Public(), key)
	if err != nil {
		return Authority{}, err
	}
	return ParseAuthority(text, keyPEM)
}

// ParseAuthority returns an authority that was stored.
func ParseAuthority(cert, key []byte) (Authority, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return Authority{}, err
	}
	signer, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return Authority{}, errors.New("the certificate is no authority's, or its key is not of ECDSA")
	}
	return Authority{cert, key, pair.Leaf, signer}, nil
}

// Expires is when the authority, and the certificates that it has signed, are no longer valid.
func (a Authority) Expires() time.Time { return a.cert.NotAfter }

// Certificate is a serving certificate for 127.0.0.1, ::1 and localhost, of an authority of its own, as PEM.
// The two are not one: rustls accepts no server whose certificate is an authority's.
type Certificate struct {
	Authority, Cert, Key []byte

	authority Authority
}

// NewCertificate makes a certificate of a new authority, also for other hosts.
func NewCertificate(hosts ...string) (Certificate, error) {
	authority, err := NewAuthority()
	if err != nil {
		return Certificate{}, err
	}
	return authority.Certificate(hosts...)
}

// Certificate makes a certificate, also for other hosts.
func (a Authority) Certificate(hosts ...string) (Certificate, error) {
	key, keyPEM, err := NewKey()
	if err != nil {
		return Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "keepwatch"},
		NotBefore:    a.cert.NotBefore, NotAfter: a.cert.NotAfter,
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
	cert, err := sign(template, a.cert, key.Public(), a.key)
	return Certificate{Authority: a.Cert, Cert: cert, Key: keyPEM, authority: a}, err
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
	expired.Cert, err = sign(&template, c.authority.cert, pair.Leaf.PublicKey, c.authority.key)
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
