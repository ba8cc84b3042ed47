package faults

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// upstream is the server behind the proxy.
type upstream struct {
	url  *url.URL
	base *http.Transport
	// rounds is base, with the proxy's credentials if it has any of its own.
	rounds http.RoundTripper
	// token is of clients without a token of the server. It is never forwarded. It is empty if the configuration's own
	// token is the clients'.
	token string
	// own is whether the proxy adds credentials or an impersonated user. Then only clients with the token are served.
	own bool
	// impersonates is whether the proxy acts as another user.
	impersonates bool
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
	u := &upstream{url: target, own: hasOwnCredentials(config), impersonates: impersonatesUser(config),
		base: &http.Transport{
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
	if u.own || config.BearerToken == "" { // kubectl asks for a password where a kubeconfig has no credentials
		u.token = rand.Text()
	}
	if u.own {
		u.rounds, err = transport.HTTPWrappersForConfig(transportConfig, u.base)
	}
	return u, err
}

// hasOwnCredentials reports whether a configuration has credentials that a client can't send by itself. A token
// in the configuration is a client's, unless the configuration impersonates: with the token alone, a client would be
// the impersonating user.
func hasOwnCredentials(c *rest.Config) bool {
	return impersonatesUser(c) || c.CertFile != "" || len(c.CertData) > 0 || c.Username != "" || c.BearerTokenFile != "" ||
		c.ExecProvider != nil || c.AuthProvider != nil || c.WrapTransport != nil
}

// impersonatesUser reports whether requests of a configuration have headers that name another user.
func impersonatesUser(c *rest.Config) bool {
	as := c.Impersonate
	return as.UserName != "" || as.UID != "" || len(as.Groups) > 0 || len(as.Extra) > 0
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

// hasToken reports whether a request has the proxy's token.
func (u *upstream) hasToken(r *http.Request) bool {
	return u.token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")),
		[]byte("Bearer "+u.token)) == 1
}

// refusal returns why a request must not be forwarded, or nil. A client's own impersonation would take the place
// of the proxy's, and the server would judge it by the rights of the proxy's credentials.
func (u *upstream) refusal(r *http.Request) *apierrors.StatusError {
	switch {
	case u.own && !u.hasToken(r):
		return apierrors.NewUnauthorized("the proxy that injects faults serves only clients with the token of its kubeconfig")
	case u.impersonates && namesUser(r.Header):
		return apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, "",
			errors.New("the proxy that injects faults acts as another user already (--as): requests through it cannot have Impersonate- headers"))
	}
	return nil
}

// namesUser reports whether a request names a user to impersonate.
func namesUser(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			return true
		}
	}
	return false
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
	if u.hasToken(out) {
		out.Header.Del("Authorization")
	}
}

func (u *upstream) close() { u.base.CloseIdleConnections() }
