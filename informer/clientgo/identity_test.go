package clientgo_test

import (
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// Direct informers read only for ListerWatchers whose client has their identity. The others read for themselves.
func TestDirectIdentity(t *testing.T) {
	certificate, err := localhost.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	const theirs, ours = "client-go ", "keepwatch "
	for name, client := range map[string]struct {
		change func(*rest.Config) *rest.Config
		reader string
	}{
		"other limits and user agent": {func(c *rest.Config) *rest.Config {
			c.QPS, c.Burst, c.UserAgent, c.Timeout = 7, 9, "controller", 0
			return c
		}, ours},
		"a wrapper that changes no header": {func(c *rest.Config) *rest.Config {
			c.Wrap(func(next http.RoundTripper) http.RoundTripper { return next })
			return c
		}, ours},
		"another impersonated user": {func(c *rest.Config) *rest.Config { c.Impersonate.UserName = "guest"; return c },
			theirs},
		"another impersonated group": {func(c *rest.Config) *rest.Config { c.Impersonate.Groups[0] = "guests"; return c },
			theirs},
		"another impersonated extra": {func(c *rest.Config) *rest.Config {
			c.Impersonate.Extra["scope"][0] = "none"
			return c
		}, theirs},
		"no impersonation": {func(c *rest.Config) *rest.Config {
			c.Impersonate = rest.ImpersonationConfig{}
			return c
		}, theirs},
		"another token": {func(c *rest.Config) *rest.Config { c.BearerToken = "guest"; return c }, theirs},
		"no token":      {func(c *rest.Config) *rest.Config { c.BearerToken = ""; return c }, theirs},
		"a password": {func(c *rest.Config) *rest.Config {
			c.BearerToken, c.Username, c.Password = "", "guest", "guest"
			return c
		}, theirs},
		"a client certificate": {func(c *rest.Config) *rest.Config {
			c.CertData, c.KeyData = certificate.Cert, certificate.Key
			return c
		}, theirs},
		"another transport": {func(c *rest.Config) *rest.Config {
			c.Transport = insecureTransport()
			c.TLSClientConfig = rest.TLSClientConfig{}
			return c
		}, theirs},
		"a dialer of its own": {func(c *rest.Config) *rest.Config { c.Dial = (&net.Dialer{}).DialContext; return c }, theirs},
		"a wrapper that adds a header": {func(c *rest.Config) *rest.Config {
			c.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return transportFunc(func(r *http.Request) (*http.Response, error) {
					r = r.Clone(r.Context())
					r.Header.Set("X-Remote-User", "guest")
					return next.RoundTrip(r)
				})
			})
			return c
		}, theirs},
		"another Direct configuration": {func(c *rest.Config) *rest.Config {
			other, _ := clientgo.Direct(c)
			return other
		}, theirs},
	} {
		t.Run(name, func(t *testing.T) {
			s := podtest.NewSecureServer(t, podtest.Pod("a", podtest.Mark("1")))
			var received requests
			s.Intercept(received.record)
			cfg := s.Config()
			cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
			cfg.BearerToken = "administrator"
			cfg.Impersonate = rest.ImpersonationConfig{UserName: "auditor", Groups: []string{"auditors"},
				Extra: map[string][]string{"scope": {"all"}}}
			forClients, direct := clientgo.Direct(cfg)
			syncedPods(t, clientgo.NewGroup(direct), podsListWatch(client.change(rest.CopyConfig(forClients))), &corev1.Pod{},
				"add! a@101[1]")
			received.want(t, client.reader)
		})
	}
}

func insecureTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	return t
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
