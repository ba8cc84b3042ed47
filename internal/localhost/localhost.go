// Package localhost has a port and a certificate for a server on 127.0.0.1.
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
	"time"
)

// Listen listens on an unused port of 127.0.0.1. The port is below the range from which
// systems choose client ports: no outgoing connection uses it while its server is stopped,
// and none connects to itself.
func Listen() (net.Listener, error) {
	const low, high = 20000, 32000
	var err error
	for range 100 {
		var l net.Listener
		l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", low+mathrand.IntN(high-low)))
		if err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port between %d and %d: %w", low, high, err)
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

// Certificate is a new serving certificate for 127.0.0.1, valid for a day, that
// is its own authority. Both parts are PEM.
type Certificate struct{ Cert, Key []byte }

// NewCertificate makes a certificate.
func NewCertificate() (Certificate, error) {
	key, keyPEM, err := NewKey()
	if err != nil {
		return Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "keepwatch"},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return Certificate{Cert: cert, Key: keyPEM}, err
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
