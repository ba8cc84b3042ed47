package proxy

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/localhost"
)

// authority signs client certificates.
type authority struct {
	*testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	key, _, err := localhost.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{T: t, key: key}
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	a.certificate = a.sign(template, template, key)
	return a
}

func serial(t *testing.T) *big.Int {
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (a *authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		a.Fatal(err)
	}
	return certificate
}

// client returns a client certificate for a user, which edits may change.
func (a *authority) client(name string, groups []string, edits ...func(*x509.Certificate)) *tls.Certificate {
	a.Helper()
	key, _, err := localhost.NewKey()
	if err != nil {
		a.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(a.T), Subject: pkix.Name{CommonName: name, Organization: groups}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, edit := range edits {
		edit(template)
	}
	return &tls.Certificate{Certificate: [][]byte{a.sign(template, a.certificate, key).Raw}, PrivateKey: key}
}

// intermediate returns an authority that this one has signed. Its clients must send its certificate, too.
func (a *authority) intermediate(name string) *authority {
	a.Helper()
	below := newAuthority(a.T, name)
	template := *below.certificate
	below.certificate = a.sign(&template, a.certificate, below.key)
	return below
}

// expired and forServers are edits of client certificates.
func expired(c *x509.Certificate)    { c.NotAfter = time.Now().Add(-time.Minute) }
func forServers(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }

// file writes the certificates of authorities to a file of the test.
func (a *authority) file(others ...*authority) string {
	a.Helper()
	file := filepath.Join(a.TempDir(), "authorities.crt")
	a.write(file, others...)
	return file
}

// write replaces a file by the certificates of authorities.
func (a *authority) write(file string, others ...*authority) {
	a.Helper()
	var text bytes.Buffer
	for _, each := range append([]*authority{a}, others...) {
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: each.certificate.Raw}); err != nil {
			a.Fatal(err)
		}
	}
	if err := os.WriteFile(file+".new", text.Bytes(), 0o600); err != nil {
		a.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		a.Fatal(err)
	}
}
