package clientgo

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	"k8s.io/client-go/rest"
)

// reader is a server as the identity of one configuration reads it.
type reader struct {
	config  *rest.Config // of the informers' own requests
	clients *rest.Config // of the ListerWatchers' clients: its transport captures requests
}

func newReader(cfg *rest.Config) *reader {
	r := &reader{config: copyConfig(cfg), clients: copyConfig(cfg)}
	r.clients.WrapTransport = func(base http.RoundTripper) http.RoundTripper {
		next := base
		if wrap := r.config.WrapTransport; wrap != nil {
			next = wrap(base)
		}
		return captureTransport{RoundTripper: next, base: base, of: r}
	}
	return r
}

// copyConfig copies a configuration. Unlike rest.CopyConfig, it copies the groups and the extra values of the
// impersonated user, too.
func copyConfig(cfg *rest.Config) *rest.Config {
	c := rest.CopyConfig(cfg)
	c.Impersonate.Groups = slices.Clone(c.Impersonate.Groups)
	c.Impersonate.Extra = maps.Clone(c.Impersonate.Extra)
	for name, values := range c.Impersonate.Extra {
		c.Impersonate.Extra[name] = slices.Clone(values)
	}
	return c
}

// captureTransport does not send requests whose context has a capturedRequest. It is below all of client-go's
// transports that add credentials, so it sees them.
type captureTransport struct {
	http.RoundTripper
	base http.RoundTripper // the connections: TLS with its client certificate
	of   *reader
}

// capturedRequest receives a request that is not sent.
type capturedRequest struct {
	url    *url.URL // nil if nothing was captured
	header http.Header
	base   http.RoundTripper
	of     *reader
}

type captureKey struct{}

var errCaptured = errors.New("the request was captured and not sent")

func (t captureTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if q, ok := r.Context().Value(captureKey{}).(*capturedRequest); ok {
		*q = capturedRequest{r.URL, r.Header.Clone(), t.base, t.of}
		return nil, errCaptured
	}
	return t.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below.
func (t captureTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// capturing returns a context whose requests are captured.
func capturing(ctx context.Context) (context.Context, *capturedRequest) {
	q := &capturedRequest{}
	return context.WithValue(ctx, captureKey{}, q), q
}

// sentAs reports whether the request would be sent with the reader's identity: over the same connections, with the
// same headers as a request of the reader's own configuration. A client whose configuration is a copy with other
// credentials, impersonation, transport or wrappers has another identity, as far as can be known.
func (q *capturedRequest) sentAs(ctx context.Context, r *reader) bool {
	if q.of != r {
		return false
	}
	transport, err := rest.TransportFor(r.clients)
	if err != nil {
		return false
	}
	ctx, own := capturing(ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, q.url.String(), nil)
	if err != nil {
		return false
	}
	if _, err = transport.RoundTrip(request); !errors.Is(err, errCaptured) {
		return false
	}
	return sameTransport(q.base, own.base) && maps.EqualFunc(identifying(q.header), identifying(own.header), slices.Equal)
}

// sameTransport reports whether two transports are the same. client-go has one for all configurations with equal TLS
// options, unless they have Dial or Proxy.
func sameTransport(a, b http.RoundTripper) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// identifying returns the headers that may determine the identity: all but those that depend on the kind of the client.
func identifying(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range []string{"Accept", "Content-Type", "User-Agent"} {
		h.Del(name)
	}
	return h
}
