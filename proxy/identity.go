package proxy

import (
	"context"
	"crypto/sha256"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

const (
	// tokenKnownFor is how long the review of a token is used, as in kube-apiserver.
	tokenKnownFor = 10 * time.Second
	// outageFor is how long the last review of a token or a request is used while the server does not answer.
	outageFor = 10 * time.Minute
	// maxReviews bounds the reviews that are remembered for an outage, of each kind.
	maxReviews = 10_000
)

// newAuthenticator returns an authenticator of bearer tokens, which the server reviews.
func newAuthenticator(client authenticationclient.AuthenticationV1Interface) (authenticator.Request, error) {
	reviews, err := webhook.NewFromInterface(client, nil, reviewRetries, 10*time.Second, webhook.AuthenticatorMetrics{
		RecordRequestTotal: authenticatorfactory.RecordRequestTotal, RecordRequestLatency: authenticatorfactory.RecordRequestLatency,
	})
	if err != nil {
		return nil, err
	}
	remembered := rememberedTokens{reviews, cache.NewLRUExpireCache(maxReviews)}
	return bearertoken.New(tokencache.New(remembered, false, tokenKnownFor, tokenKnownFor)), nil
}

// reviewRetries is how a review is repeated whose response is an error of the server.
var reviewRetries = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 3}

// rememberedTokens uses the last review of a token while the server does not answer.
type rememberedTokens struct {
	reviews authenticator.Token
	last    *cache.LRUExpireCache // *authenticator.Response by the token's digest
}

func (r rememberedTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	digest := sha256.Sum256([]byte(token))
	response, ok, err := r.reviews.AuthenticateToken(ctx, token)
	switch {
	case err != nil:
		if last, found := r.last.Get(digest); found {
			return last.(*authenticator.Response), true, nil
		}
	case ok:
		r.last.Add(digest, response, outageFor)
	default:
		r.last.Remove(digest)
	}
	return response, ok, err
}

// namesItself reports whether the caller's identity is its certificate or its token alone: a request that impersonates
// another user is the server's to judge.
func namesItself(q *http.Request) bool {
	for name := range q.Header {
		if isImpersonation(name) {
			return false
		}
	}
	return certifiedUser(q.Context()) != nil || len(q.Header.Values("Authorization")) == 1
}
