package serving

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
)

// authority is the certificate authority that a kubeconfig pins. It outlives restarts; each start
// issues a new serving certificate for its address.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// pem is the certificate for clients.
	pem []byte
}

const (
	authorityLife   = 10 * 365 * 24 * time.Hour
	certificateLife = 2 * 365 * 24 * time.Hour
	// clockSkew is the tolerated lag of a client's clock.
	clockSkew = time.Hour
	// requestedSkew is the same for a certificate that a client requested, as in kube-controller-manager.
	requestedSkew = 5 * time.Minute
)

// loadAuthority reads the authority in the data folder, or creates it.
func loadAuthority(d *datadir.Dir) (*authority, error) {
	content, err := d.ReadOrCreate(authorityFile, newAuthority)
	if err != nil {
		return nil, fmt.Errorf("cannot store a certificate authority in %s: %w", d.Path, datadir.Cause(err))
	}
	a, err := parseAuthority(content)
	if err != nil {
		return nil, fmt.Errorf(
			"the certificate authority %s is damaged (%w): restore the file, or remove it to get a new one and a new kubeconfig",
			d.File(authorityFile), err)
	}
	return a, nil
}

// newAuthority returns a self-signed certificate and its key, PEM.
func newAuthority() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "keepwatch-ca"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return encodePair(der, key)
}

func parseAuthority(content []byte) (*authority, error) {
	certBlock, rest := pem.Decode(content)
	keyBlock, _ := pem.Decode(rest)
	if certBlock == nil || keyBlock == nil {
		return nil, errors.New("it has no certificate and key")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(certBlock)}, nil
}

// issue returns a serving certificate and key, PEM, for the local names and for host.
func (a *authority) issue(host string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "keepwatch"},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost", loopbackName},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if name, err := os.Hostname(); err == nil {
		template.DNSNames = append(template.DNSNames, name)
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	} else if host != "" {
		template.DNSNames = append(template.DNSNames, host)
	}
	return a.sign(template, private)
}

// issueClient returns a client certificate and key, PEM, for a user and the user's groups.
func (a *authority) issueClient(name string, groups []string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	return a.sign(template, private)
}

// issueRequested returns a client certificate, PEM, that a request asks for. Its names are the request's; extensions of
// the request are left out. It does not outlive the authority.
func (a *authority) issueRequested(request *x509.CertificateRequest, usage x509.KeyUsage,
	life time.Duration) ([]byte, error) {
	if err := request.CheckSignature(); err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: request.Subject,
		DNSNames: request.DNSNames, IPAddresses: request.IPAddresses, EmailAddresses: request.EmailAddresses,
		URIs:      request.URIs,
		NotBefore: now.Add(-requestedSkew), NotAfter: now.Add(life),
		KeyUsage: usage, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, request.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// sign returns a certificate of a key, and the key, PEM.
func (a *authority) sign(template *x509.Certificate, private *ecdsa.PrivateKey) (cert, key []byte, err error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	pair, err := encodePair(der, private)
	if err != nil {
		return nil, nil, err
	}
	block, rest := pem.Decode(pair)
	return pem.EncodeToMemory(block), rest, nil
}

// encodePair returns a certificate followed by its key, PEM.
func encodePair(der []byte, key *ecdsa.PrivateKey) ([]byte, error) {
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		return nil, err
	}
	if err := pem.Encode(&out, &pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func serial() *big.Int {
	n := make([]byte, 16)
	rand.Read(n)
	n[0] &= 0x7f // positive, at most 20 bytes (RFC 5280)
	return new(big.Int).SetBytes(n)
}
