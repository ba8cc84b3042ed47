package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/internal/localhost"
)

var proxyAddress = regexp.MustCompile(`at https://(127\.0\.0\.1:\d+)`)

// The serving certificate is read again when its files change. While they don't fit together, the former one is served.
func TestProxyReadsCertificateAgain(t *testing.T) {
	cluster(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	first, second := writtenCertificate(t, certFile, keyFile), newTestCertificate(t)
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", "", "--tls-cert-file", certFile, "--tls-private-key-file", keyFile)
	waitLine(t, p, "keepwatch: proxy of ")
	address := proxyAddress.FindStringSubmatch(p.stderr.String())[1]
	if err := trusts(address, first); err != nil {
		t.Error(err)
	}
	replaceFile(t, certFile, second.Cert)
	if err := trusts(address, first); err != nil {
		t.Errorf("while the key is that of another certificate: %v", err)
	}
	replaceFile(t, keyFile, second.Key)
	eventually(t, "the new certificate is served", func() error { return trusts(address, second) })
	terminate(t, p)
}

// The authority of a self-signed certificate is printed if no kubeconfig has it.
func TestProxyPrintsItsAuthority(t *testing.T) {
	cluster(t)
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", "")
	waitLine(t, p, "\n-----END CERTIFICATE-----\n")
	printed := p.stderr.String()
	if err := trusts(proxyAddress.FindStringSubmatch(printed)[1], localhost.Certificate{Authority: []byte(printed[strings.Index(printed, "-----BEGIN"):])}); err != nil {
		t.Errorf("a client with the printed authority: %v", err)
	}
	terminate(t, p)
	file := filepath.Join(t.TempDir(), "proxy.kubeconfig")
	p = startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", file)
	waitLine(t, p, "keepwatch: proxy of ")
	if _, err := clientOf(t, file).Discovery().ServerVersion(); err != nil {
		t.Errorf("a client with the kubeconfig: %v", err)
	}
	if terminate(t, p); strings.Contains(p.stderr.String(), "CERTIFICATE") {
		t.Errorf("an authority that the kubeconfig has is printed: %s", p.stderr.String())
	}
}

func newTestCertificate(t *testing.T) localhost.Certificate {
	t.Helper()
	c, err := localhost.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func writtenCertificate(t *testing.T, certFile, keyFile string) localhost.Certificate {
	t.Helper()
	c := newTestCertificate(t)
	replaceFile(t, certFile, c.Cert)
	replaceFile(t, keyFile, c.Key)
	return c
}

// replaceFile replaces a file as Kubernetes does for volumes: there is no moment without it.
func replaceFile(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file+".new", text, 0o600), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
}

// trusts connects as a client that trusts the authority of a certificate.
func trusts(address string, c localhost.Certificate) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.Authority) {
		return fmt.Errorf("no authority in %q", c.Authority)
	}
	connection, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots})
	if err != nil {
		return err
	}
	return connection.Close()
}
