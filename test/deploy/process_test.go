package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/test/peer"
)

// start runs the command keepwatch for the duration of the test, and prints the end of its log if the test fails.
func start(t *testing.T, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(peer.Keepwatch(t), args...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("keepwatch %q:\n%s", args, text[max(0, len(text)-4096):])
		}
		log.Close()
	})
}

// proxied is a keepwatch proxy.
type proxied struct {
	*testing.T
	url    string
	client *http.Client
}

// startProxy starts a proxy whose serving certificate has an authority.
func startProxy(t *testing.T, kubeconfig string, authority []byte, args []string) *proxied {
	t.Helper()
	port, err := localhost.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	start(t, append([]string{"proxy", "--kubeconfig", kubeconfig, "--kubeconfig-out", "", "--listen", address},
		args...)...)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	return &proxied{t, "https://" + address,
		&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}}}
}

// do sends a request, and returns the status and the body; 0 if the proxy does not listen.
func (p *proxied) do(path, token string) (int, string) {
	p.Helper()
	q, err := http.NewRequestWithContext(p.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		p.Fatal(err)
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := p.client.Do(q)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func (p *proxied) get(path, token string) int {
	p.Helper()
	code, _ := p.do(path, token)
	return code
}

func (p *proxied) body(path, token string) string {
	p.Helper()
	_, body := p.do(path, token)
	return body
}

// writeFile writes a file, and returns its path.
func writeFile(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
