package localhost

import (
	"crypto/x509"
	"testing"
	"time"
)

// TestCertificate requires a certificate that a client accepts by its authority, and that is none itself.
func TestCertificate(t *testing.T) {
	certificate, err := NewCertificate("192.0.2.7", "keepwatch.example")
	if err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(certificate.Authority) {
		t.Fatal("no authority")
	}
	leaf := leafOf(t, certificate)
	if leaf.IsCA {
		t.Error("the certificate is an authority")
	}
	for _, host := range []string{"127.0.0.1", "::1", "localhost", "192.0.2.7", "keepwatch.example"} {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: authorities}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "other.example", Roots: authorities}); err == nil {
		t.Error("the certificate is accepted for another host")
	}

	expired, err := certificate.Expired()
	if err != nil {
		t.Fatal(err)
	}
	old := leafOf(t, expired)
	if _, err := old.Verify(x509.VerifyOptions{DNSName: "localhost", Roots: authorities}); err == nil {
		t.Error("the expired certificate is accepted")
	}
	yesterday := time.Now().Add(-2 * time.Hour)
	if err := old.CheckSignatureFrom(certificate.authority.cert); err != nil || old.NotBefore.After(yesterday) {
		t.Errorf("valid from %v on: %v; want the same authority's, valid before", old.NotBefore, err)
	}
}

func leafOf(t *testing.T, c Certificate) *x509.Certificate {
	t.Helper()
	pair, err := c.Pair()
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// TestPortsReturnLate stops servers for a while: no other one gets their ports.
func TestPortsReturnLate(t *testing.T) {
	seen := map[int]bool{}
	for range 5000 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < 20000 || port >= 32000 {
			t.Fatalf("port %d, after %d others", port, len(seen))
		}
		seen[port] = true
	}
}
