package access

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

// Caller is who sent a request, by its credentials.
type Caller struct {
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

// Caller returns who sent a request. Of one with a certificate, identify has found the user.
func (c *Control) Caller(q *http.Request) (*Caller, error) {
	if certified := CertifiedUser(q.Context()); certified != nil {
		return &Caller{certified, q.TLS.PeerCertificates[0].NotAfter, func(context.Context) (user.Info, error) {
			return c.certificates.again(q)
		}}, nil
	}
	by := &Caller{again: c.own.again}
	if !c.own.sent(q) {
		token := bearerToken(q)
		if token == "" {
			return nil, errUnknown
		}
		address := clientAddress(q)
		by.expires = expiry(token)
		by.again = func(ctx context.Context) (user.Info, error) { return c.tokens.again(ctx, token, address) }
		known, err := c.tokens.user(q.Context(), token, address)
		if err == nil && c.tokens.reviewedAt(token).After(by.expires) {
			by.expires = time.Time{}
		}
		by.Info = known
		return by, err
	}
	known, err := by.again(q.Context())
	by.Info = known
	return by, err
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

// NamesItself reports whether the caller's identity is its certificate or its token alone: a request that impersonates
// another user is the server's to judge.
func NamesItself(q *http.Request) bool {
	return !Impersonates(q) && (CertifiedUser(q.Context()) != nil || len(q.Header.Values("Authorization")) == 1)
}
