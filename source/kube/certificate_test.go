package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// serveTLS starts a server with the given settings, whose certificate expires after
// validity, and returns a client configuration. No request may reach the handler.
func serveTLS(t *testing.T, settings *tls.Config, validity time.Duration) *rest.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(validity)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "keepwatch test"},
		NotBefore: end.Add(-2 * time.Hour), NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	settings.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Error("a request reached the handler")
	}))
	srv.Config.ErrorLog = discardLog
	srv.TLS = settings
	srv.StartTLS()
	t.Cleanup(srv.Close)
	cfg := &rest.Config{Host: srv.URL}
	cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cfg
}

// serveCertified starts a server whose certificate is valid for two hours, and expires
// after validity.
func serveCertified(t *testing.T, validity time.Duration) *rest.Config {
	return serveTLS(t, &tls.Config{}, validity)
}

// untrustedConfig starts a server that does not trust the client's certificate. With
// TLS 1.2 it reports that before any request.
func untrustedConfig(t *testing.T) *rest.Config {
	settings := &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(),
		MaxVersion: tls.VersionTLS12}
	cfg := serveTLS(t, settings, time.Hour)
	key, err := x509.MarshalPKCS8PrivateKey(settings.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cfg.CertData = cfg.CAData
	cfg.KeyData = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	return cfg
}

// named returns cfg with another server name.
func named(cfg *rest.Config, name string) *rest.Config {
	other := rest.CopyConfig(cfg)
	other.ServerName = name
	return other
}
