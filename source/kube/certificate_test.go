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

// secured is how to reach a server with settings of its own, whose certificate
// ends validity from now.
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
		t.Error("a request came through")
	}))
	srv.Config.ErrorLog = discardLog
	srv.TLS = settings
	srv.StartTLS()
	t.Cleanup(srv.Close)
	cfg := &rest.Config{Host: srv.URL}
	cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cfg
}

// certified is how to reach a server whose certificate holds for two hours, up to
// validity from now.
func serveCertified(t *testing.T, validity time.Duration) *rest.Config {
	return serveTLS(t, &tls.Config{}, validity)
}

// distrusting is how to reach a server that does not know who made our
// certificate. By TLS 1.2 it says so before any request.
func untrustedConfig(t *testing.T) *rest.Config {
	settings := &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), MaxVersion: tls.VersionTLS12}
	cfg := serveTLS(t, settings, time.Hour)
	key, err := x509.MarshalPKCS8PrivateKey(settings.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cfg.CertData = cfg.CAData
	cfg.KeyData = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	return cfg
}

// named goes to the same server as cfg, by another name.
func named(cfg *rest.Config, name string) *rest.Config {
	other := rest.CopyConfig(cfg)
	other.ServerName = name
	return other
}
