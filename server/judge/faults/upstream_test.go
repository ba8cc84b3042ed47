package faults

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/localhost"
)

// headers is a server that remembers the headers of its requests.
type headers struct {
	*httptest.Server
	mu  sync.Mutex
	all []http.Header
}

func (h *headers) got() []http.Header {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

func newHeaders(t *testing.T, start func(http.Handler) *httptest.Server) *headers {
	h := &headers{}
	h.Server = start(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, r.Header)
	}))
	t.Cleanup(h.Close)
	return h
}

// send sends a request, with further headers.
func send(t *testing.T, config *rest.Config, further map[string]string) int {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+pods, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range further {
		r.Header.Set(name, value)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// A proxy that acts as another user does not hand out the credentials of the acting one, and lets no client choose a
// third user.
func TestImpersonation(t *testing.T) {
	certificate, err := localhost.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*rest.Config){
		"with a token":    func(c *rest.Config) { c.BearerToken = "administrator" },
		"with a password": func(c *rest.Config) { c.Username, c.Password = "administrator", "secret" },
		"with a certificate": func(c *rest.Config) {
			c.CertData, c.KeyData = certificate.Cert, certificate.Key
		},
		"as a group": func(c *rest.Config) {
			c.BearerToken, c.Impersonate = "administrator", rest.ImpersonationConfig{Groups: []string{"guests"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newHeaders(t, httptest.NewTLSServer)
			upstream := &rest.Config{
				Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certificatePEM(server.Certificate())},
				Impersonate: rest.ImpersonationConfig{UserName: "guest", Groups: []string{"guests"}},
			}
			change(upstream)
			p := New(t, upstream, Plan{})
			if token := p.Config().BearerToken; token == "" || token == upstream.BearerToken {
				t.Errorf("clients have the token %q", token)
			}
			if code := send(t, p.Config(), nil); code != http.StatusOK || len(server.got()) != 1 {
				t.Fatalf("a client receives %d, and the server got %v", code, server.got())
			}
			got := server.got()[0]
			if got.Get("Impersonate-User") != upstream.Impersonate.UserName || got.Get("Impersonate-Group") != "guests" ||
				strings.Contains(got.Get("Authorization"), p.Config().BearerToken) {
				t.Errorf("the server got %v", got)
			}
			for _, name := range []string{"Impersonate-User", "impersonate-group", "Impersonate-Uid",
				"Impersonate-Extra-scopes"} {
				if code := send(t, p.Config(), map[string]string{name: "system:masters"}); code != http.StatusForbidden {
					t.Errorf("a client with the header %s receives %d", name, code)
				}
			}
			if code := send(t, rest.AnonymousClientConfig(p.Config()), nil); code != http.StatusUnauthorized {
				t.Errorf("a client without the token receives %d", code)
			}
			if len(server.got()) != 1 {
				t.Errorf("refused requests were forwarded: %v", server.got())
			}
		})
	}
}

// In front of a server without credentials, as kubectl proxy is, clients have a token nevertheless: kubectl would ask
// for a password. The server does not receive it, and clients' own tokens are forwarded.
func TestNoCredentials(t *testing.T) {
	server := newHeaders(t, httptest.NewServer)
	p := New(t, &rest.Config{Host: server.URL}, Plan{})
	if p.Config().BearerToken == "" {
		t.Fatal("clients have no credentials")
	}
	other := p.Config()
	other.BearerToken = "theirs"
	for _, config := range []*rest.Config{p.Config(), rest.AnonymousClientConfig(other), other} {
		if code := send(t, config, nil); code != http.StatusOK {
			t.Errorf("a client receives %d", code)
		}
	}
	for i, want := range []string{"", "", "Bearer theirs"} {
		if got := server.got()[i].Get("Authorization"); got != want {
			t.Errorf("the server got %q, want %q", got, want)
		}
	}
}
