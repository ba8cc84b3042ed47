package proxy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// caller is who sent a request, by its credentials.
type caller struct {
	user.Info
	// expires is when the credentials do. Zero means that this is not known, or never. It is not known of a token that
	// the server has accepted later than that: the clocks differ.
	expires time.Time
	// again authenticates the credentials once more. It returns errUnknown if they are no longer valid, and any other
	// error if that is not decided.
	again func(context.Context) (user.Info, error)
}

// errUnknown is why credentials name nobody. It is an answer of the server's.
var errUnknown = errors.New("the API server does not know the credentials")

// caller returns who sent a request.
func (p *Proxy) caller(q *http.Request) (*caller, error) {
	if certified := certifiedUser(q.Context()); certified != nil {
		return &caller{certified, q.TLS.PeerCertificates[0].NotAfter, func(context.Context) (user.Info, error) {
			return p.certificates.again(q)
		}}, nil
	}
	c := &caller{again: p.own.again}
	if !p.own.sent(q) {
		token := bearerToken(q)
		if token == "" {
			return nil, errUnknown
		}
		address := clientAddress(q)
		c.expires = expiry(token)
		c.again = func(ctx context.Context) (user.Info, error) { return p.tokens.again(ctx, token, address) }
		known, err := p.tokens.user(q.Context(), token, address)
		if err == nil && p.tokens.reviewedAt(token).After(c.expires) {
			c.expires = time.Time{}
		}
		c.Info = known
		return c, err
	}
	known, err := c.again(q.Context())
	c.Info = known
	return c, err
}

// bearerToken returns the token of a request, as API servers read it, or nothing.
func bearerToken(q *http.Request) string {
	parts := strings.SplitN(strings.TrimSpace(q.Header.Get("Authorization")), " ", 3)
	if len(parts) < 2 || !strings.EqualFold(parts[0], "bearer") {
		return ""
	}
	return parts[1]
}

// expiryLeeway is how long after its expiry API servers accept a token: their clocks may differ.
const expiryLeeway = time.Minute

// expiry returns when servers no longer accept a token, zero if the token does not say that. Only the server verifies a
// token: what a wrong one says has no effect.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".") // of a JSON Web Token (RFC 7519)
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Expires <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0).Add(expiryLeeway)
}

// namesItself reports whether the caller's identity is its certificate or its token alone: a request that impersonates
// another user is the server's to judge.
func namesItself(q *http.Request) bool {
	return !impersonates(q) && (certifiedUser(q.Context()) != nil || len(q.Header.Values("Authorization")) == 1)
}

// impersonates reports whether a request has a header that names another user.
func impersonates(q *http.Request) bool {
	for name := range q.Header {
		if isImpersonation(name) {
			return true
		}
	}
	return false
}
