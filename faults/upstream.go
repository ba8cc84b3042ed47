package faults

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// upstream is the server behind the proxy.
type upstream struct {
	url  *url.URL
	base *http.Transport
	// rounds is base, with the proxy's credentials if it has any of its own.
	rounds http.RoundTripper
	// token is what clients authenticate with if the proxy has credentials of its own; otherwise it is
	// empty, and clients' credentials are forwarded.
	token string
}

func newUpstream(config *rest.Config) (*upstream, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	transportConfig, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(transportConfig)
	if err != nil {
		return nil, err
	}
	u := &upstream{url: target, base: &http.Transport{
		TLSClientConfig: tlsConfig,
		Proxy:           http.ProxyFromEnvironment,
		// One connection for each request: a fault of one cannot delay another. Bytes are
		// forwarded unchanged.
		MaxIdleConnsPerHost: 16, DisableCompression: true,
	}}
	if config.Proxy != nil {
		u.base.Proxy = config.Proxy
	}
	if config.Dial != nil {
		u.base.DialContext = config.Dial
	}
	u.rounds = u.base
	if hasOwnCredentials(config) {
		u.token = rand.Text()
		u.rounds, err = transport.HTTPWrappersForConfig(transportConfig, u.base)
	}
	return u, err
}

// hasOwnCredentials reports whether a configuration has credentials that a client can't send by itself. A token
// in the configuration is a client's.
func hasOwnCredentials(c *rest.Config) bool {
	return c.CertFile != "" || len(c.CertData) > 0 || c.Username != "" || c.BearerTokenFile != "" ||
		c.ExecProvider != nil || c.AuthProvider != nil || c.WrapTransport != nil
}

// clientConfig is the configuration of the proxy's clients.
func (u *upstream) clientConfig(config *rest.Config, address net.Addr, authority []byte) *rest.Config {
	c := rest.AnonymousClientConfig(config)
	c.Host = "https://" + reachable(address)
	c.TLSClientConfig = rest.TLSClientConfig{CAData: authority}
	c.Proxy, c.Dial = nil, nil
	if c.BearerToken = u.token; u.token == "" {
		c.BearerToken = config.BearerToken
	}
	return c
}

// reachable is an address that clients on this machine can connect to.
func reachable(address net.Addr) string {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Port}).String()
	}
	return address.String()
}

// authenticates reports whether a client may use the proxy's credentials, if it has any.
func (u *upstream) authenticates(r *http.Request) bool {
	return u.token == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+u.token)) == 1
}

// connectionHeaders concern one connection only.
var connectionHeaders = []string{"Connection", "Keep-Alive", "Te", "Upgrade", "Proxy-Connection"}

// request returns a client's request as it is sent upstream.
func (u *upstream) request(ctx context.Context, r *http.Request) *http.Request {
	out := r.Clone(ctx)
	u.address(out)
	out.RequestURI = ""
	for _, name := range connectionHeaders {
		out.Header.Del(name)
	}
	return out
}

// address directs a request upstream, and removes the proxy's token.
func (u *upstream) address(out *http.Request) {
	out.URL.Scheme, out.URL.Host, out.Host = u.url.Scheme, u.url.Host, u.url.Host
	if prefix := strings.TrimSuffix(u.url.Path, "/"); prefix != "" {
		out.URL.Path = prefix + out.URL.Path
		if out.URL.RawPath != "" {
			out.URL.RawPath = prefix + out.URL.RawPath
		}
	}
	if u.token != "" {
		out.Header.Del("Authorization")
	}
}

func (u *upstream) close() { u.base.CloseIdleConnections() }
