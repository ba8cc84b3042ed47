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

// Certificate is a serving certificate for 127.0.0.1, ::1 and localhost that is its own authority.
// Both parts are PEM.
type Certificate struct{ Cert, Key []byte }

// NewCertificate makes a certificate that is valid for a year, also for other hosts.
func NewCertificate(hosts ...string) (Certificate, error) {
	key, keyPEM, err := NewKey()
	if err != nil {
		return Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "keepwatch"},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	cert, err := sign(template, template, key)
	return Certificate{Cert: cert, Key: keyPEM}, err
}

// Expired returns a certificate of the same authority, key and hosts that expired an hour ago.
func (c Certificate) Expired() (Certificate, error) {
	pair, err := c.Pair()
	if err != nil {
		return Certificate{}, err
	}
	template := *pair.Leaf
	template.SerialNumber = new(big.Int).Add(template.SerialNumber, big.NewInt(1))
	template.NotBefore, template.NotAfter = time.Now().AddDate(0, 0, -1), time.Now().Add(-time.Hour)
	cert, err := sign(&template, pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey))
	return Certificate{Cert: cert, Key: c.Key}, err
}

// sign makes a certificate as PEM.
func sign(template, authority *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), key)
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
