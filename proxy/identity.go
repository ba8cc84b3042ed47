package proxy

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// tokenKnownFor is how long the review of a token is used, as in kube-apiserver.
const tokenKnownFor = 10 * time.Second

// newAuthenticator returns an authenticator of bearer tokens, which the server reviews.
func newAuthenticator(reviews authenticationclient.AuthenticationV1Interface) (authenticator.Request, error) {
	authenticate, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient: reviews, TokenAccessReviewTimeout: 10 * time.Second, CacheTTL: tokenKnownFor,
		WebhookRetryBackoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 3},
	}.New()
	return authenticate, err
}

// namesItself reports whether the caller's identity is its token alone: a request that impersonates another
// user is the server's to judge.
func namesItself(q *http.Request) bool {
	if len(q.Header.Values("Authorization")) != 1 {
		return false
	}
	for name := range q.Header {
		if len(name) > len(impersonate) && name[:len(impersonate)] == impersonate {
			return false
		}
	}
	return true
}

// impersonate begins the headers of impersonation.
const impersonate = "Impersonate-"
