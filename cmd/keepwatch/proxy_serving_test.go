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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
)

var proxyAddress = regexp.MustCompile(`at https://(127\.0\.0\.1:\d+)`)

// The serving certificate is read again when its files change. While they don't fit together, the former one is served.
func TestProxyReadsCertificateAgain(t *testing.T) {
	parallel(t)
	quietCluster(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	first, second := writtenCertificate(t, certFile, keyFile), newTestCertificate(t)
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", "", "--tls-cert-file", certFile,
		"--tls-private-key-file", keyFile)
	p.waitStderr(t, "keepwatch: proxy of ")
	address := proxyAddress.FindStringSubmatch(p.stderr.String())[1]
	if err := trusts(address, first); err != nil {
		t.Error(err)
	}
	replaceFile(t, certFile, second.Cert)
	if err := trusts(address, first); err != nil {
		t.Errorf("while the key is that of another certificate: %v", err)
	}
	replaceFile(t, keyFile, second.Key)
	await.NoError(t, "the new certificate is served", func() error { return trusts(address, second) })
	terminate(t, p)
}

// The authority of a self-signed certificate is printed if no kubeconfig has it.
func TestProxyPrintsItsAuthority(t *testing.T) {
	parallel(t)
	quietCluster(t)
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", "")
	p.waitStderr(t, "\n-----END CERTIFICATE-----\n")
	printed := p.stderr.String()
	if err := trusts(proxyAddress.FindStringSubmatch(printed)[1],
		localhost.Certificate{Authority: []byte(printed[strings.Index(printed, "-----BEGIN"):])}); err != nil {
		t.Errorf("a client with the printed authority: %v", err)
	}
	terminate(t, p)
	file := filepath.Join(t.TempDir(), "proxy.kubeconfig")
	p = startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", file)
	p.waitStderr(t, "keepwatch: proxy of ")
	if _, err := clientOf(t, file).Discovery().ServerVersion(); err != nil {
		t.Errorf("a client with the kubeconfig: %v", err)
	}
	if terminate(t, p); strings.Contains(p.stderr.String(), "CERTIFICATE") {
		t.Errorf("an authority that the kubeconfig has is printed: %s", p.stderr.String())
	}
}

// With --state, clients know the proxy by the same authority and token after a restart.
func TestProxyKeepsItsAuthority(t *testing.T) {
	parallel(t)
	quietCluster(t)
	dir := t.TempDir()
	state, file, address := filepath.Join(dir, "state"), filepath.Join(dir, "proxy.kubeconfig"), child.Address(t)
	start := func() *process {
		p := startProcess(t, "proxy", "--listen", address, "--kubeconfig-out", file, "--state", state)
		p.waitStderr(t, "keepwatch: proxy of ")
		return p
	}
	p := start()
	client := clientOf(t, file)
	for range 2 {
		if _, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("a client with the first kubeconfig: %v", err)
		}
		terminate(t, p)
		p = start()
	}
	terminate(t, p)
	if about, err := os.Stat(filepath.Join(state, "credentials.json")); err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("the file with the token: %v, %v", about, err)
	}
	stored := filepath.Join(state, "credentials.json")
	if err := os.WriteFile(stored, []byte("{damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	p = start()
	if _, err := clientOf(t, file).Discovery().ServerVersion(); err != nil {
		t.Errorf("a client with a new kubeconfig: %v", err)
	}
	terminate(t, p)
}

// The kubeconfig has the authority of a certificate from a file, also of a later one.
func TestProxyTrustsCertificateFile(t *testing.T) {
	parallel(t)
	quietCluster(t)
	dir := t.TempDir()
	certFile, keyFile, file := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir,
		"proxy.kubeconfig")
	writtenCertificate(t, certFile, keyFile)
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", file, "--tls-cert-file", certFile,
		"--tls-private-key-file", keyFile)
	p.waitStderr(t, "keepwatch: proxy of ")
	if _, err := clientOf(t, file).Discovery().ServerVersion(); err != nil {
		t.Errorf("a client with the kubeconfig: %v", err)
	}
	second := newTestCertificate(t)
	replaceFile(t, certFile, append(second.Cert, second.Authority...))
	replaceFile(t, keyFile, second.Key)
	await.NoError(t, "a client with the kubeconfig trusts the new certificate", func() error {
		if config, err := clientcmd.BuildConfigFromFlags("", file); err != nil ||
			string(config.CAData) != string(second.Authority) {
			return fmt.Errorf("the kubeconfig has another authority, %w", err)
		}
		_, err := clientOf(t, file).Discovery().ServerVersion()
		return err
	})
	terminate(t, p)
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
