package peer

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

// Authority signs client certificates.
type Authority struct {
	testing.TB
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes an authority that is valid for a day.
func NewAuthority(tb testing.TB, name string) *Authority {
	tb.Helper()
	key, _, err := localhost.NewKey()
	if err != nil {
		tb.Fatal(err)
	}
	a := &Authority{TB: tb, key: key}
	template := &x509.Certificate{
		SerialNumber: serial(tb), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	a.Certificate = a.sign(template, template, key)
	return a
}

func serial(tb testing.TB) *big.Int {
	tb.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func (a *Authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
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

// Client returns a client certificate for a user, which edits may change.
func (a *Authority) Client(name string, groups []string, edits ...func(*x509.Certificate)) *tls.Certificate {
	a.Helper()
	key, _, err := localhost.NewKey()
	if err != nil {
		a.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(a.TB), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, edit := range edits {
		edit(template)
	}
	return &tls.Certificate{Certificate: [][]byte{a.sign(template, a.Certificate, key).Raw}, PrivateKey: key}
}

// ClientFiles writes a client certificate for a user, and its key, to files of the test.
func (a *Authority) ClientFiles(name string, groups []string) (cert, key string) {
	a.Helper()
	client := a.Client(name, groups)
	der, err := x509.MarshalPKCS8PrivateKey(client.PrivateKey)
	if err != nil {
		a.Fatal(err)
	}
	dir := a.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: client.Certificate[0]},
		key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			a.Fatal(err)
		}
	}
	return cert, key
}

// Intermediate returns an authority that this one has signed. Its clients must send its certificate, too.
func (a *Authority) Intermediate(name string) *Authority {
	a.Helper()
	below := NewAuthority(a.TB, name)
	template := *below.Certificate
	below.Certificate = a.sign(&template, a.Certificate, below.key)
	return below
}

// File writes the certificates of authorities to a file of the test.
func (a *Authority) File(others ...*Authority) string {
	a.Helper()
	file := filepath.Join(a.TempDir(), "authorities.crt")
	a.Write(file, others...)
	return file
}

// Write replaces a file by the certificates of authorities.
func (a *Authority) Write(file string, others ...*Authority) {
	a.Helper()
	var text bytes.Buffer
	for _, each := range append([]*Authority{a}, others...) {
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: each.Certificate.Raw}); err != nil {
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
