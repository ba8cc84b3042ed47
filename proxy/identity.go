package proxy

import (
	"context"
	"crypto/sha256"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/util/webhook"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/klog/v2"
)

const (
	// tokenKnownFor is how long the review of a token is used, as in kube-apiserver.
	tokenKnownFor = 10 * time.Second
	// outageFor is how long the last review of a token or a request is used while the server does not answer.
	outageFor = 10 * time.Minute
	// failureKnownFor is how long a server that has not answered a review of the proxy itself is not asked again.
	failureKnownFor = 5 * time.Second
	// maxReviews bounds the reviews that are remembered for an outage, of each kind.
	maxReviews = 10_000
)

// newAuthenticator returns an authenticator of bearer tokens, which the server reviews.
func newAuthenticator(client authenticationclient.AuthenticationV1Interface, server *probe) authenticator.Request {
	return bearertoken.New(tokencache.New(newRememberedTokens(client, server), false, tokenKnownFor, tokenKnownFor))
}

// reviewRetries is how a review is repeated whose response is an error of the server.
var reviewRetries = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 3}

// rememberedTokens uses the last review of a token while the server does not answer. A refusal is an answer: API servers
// give its reason as the status' error, which k8s.io/apiserver's own webhook authenticator does not distinguish from an outage.
type rememberedTokens struct {
	reviews authenticationclient.AuthenticationV1Interface
	probe   *probe
	last    *cache.LRUExpireCache // *authenticator.Response by the token's digest
}

func newRememberedTokens(client authenticationclient.AuthenticationV1Interface, server *probe) rememberedTokens {
	return rememberedTokens{authenticationclient.New(once{client.RESTClient()}), server, cache.NewLRUExpireCache(maxReviews)}
}

func (r rememberedTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	digest := sha256.Sum256([]byte(token))
	status, err := r.review(ctx, token)
	if isOutage(err) {
		if last, found := r.last.Get(digest); found {
			return last.(*authenticator.Response), true, nil
		}
	}
	if err != nil {
		return nil, false, err
	}
	if !status.Authenticated {
		r.last.Remove(digest)
		return nil, false, nil
	}
	response := &authenticator.Response{User: reviewedUser(status.User)}
	r.last.Add(digest, response, outageFor)
	return response, true, nil
}

// review asks the server who the bearer of a token is.
func (r rememberedTokens) review(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	ctx, cancel, err := r.probe.reviewing(ctx)
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, err
	}
	defer cancel()
	var answer *authenticationv1.TokenReview
	err = webhook.WithExponentialBackoff(ctx, reviewRetries, func() (err error) {
		asked := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		answer, err = r.reviews.TokenReviews().Create(ctx, asked, metav1.CreateOptions{})
		return err
	}, webhook.DefaultShouldRetry)
	if err != nil {
		klog.V(2).InfoS("The server does not review a token", "err", err)
		return authenticationv1.TokenReviewStatus{}, err
	}
	return answer.Status, nil
}

// reviewedUser returns the user of a review.
func reviewedUser(u authenticationv1.UserInfo) *user.DefaultInfo {
	extra := make(map[string][]string, len(u.Extra))
	for name, values := range u.Extra {
		extra[name] = values
	}
	return &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}
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
