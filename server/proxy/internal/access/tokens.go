package access

import (
	"context"
	"crypto/sha256"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
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
	// maxReviews bounds the reviews that are remembered for an outage, of each kind, and maxViewReviews those of personal
	// views.
	maxReviews, maxViewReviews = 10_000, 100_000
)

// reviewRetries is how a review is repeated whose response is an error of the server.
var reviewRetries = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 3}

// tokens has the server review bearer tokens, and remembers its answers: for tokenKnownFor, and while the server does
// not answer, the last review of a token for outageFor. Wrong tokens are remembered apart, so that a flood of them
// evicts no valid one, and the clients of one address have few tokens reviewed at a time that are not known to be
// valid. It is safe for concurrent use.
//
// k8s.io/apiserver's own authenticator does not distinguish a refusal from an outage: API servers give the reason of a
// refusal as the status' error.
type tokens struct {
	reviews  authenticationclient.AuthenticationV1Interface
	probe    *Probe
	known    *cache.LRUExpireCache // reviewedToken by the token's digest
	refused  *cache.LRUExpireCache // by the token's digest
	asking   singleflight.Group    // by the token's digest
	inFlight *inFlight             // by client address
}

// reviewedToken is the last review of a valid token.
type reviewedToken struct {
	user  *user.DefaultInfo
	at    time.Time
	until time.Time // the server is not asked again before
}

func newTokens(client authenticationclient.AuthenticationV1Interface, server *Probe) *tokens {
	return &tokens{
		reviews: authenticationclient.New(once{client.RESTClient()}), probe: server,
		known: cache.NewLRUExpireCache(maxReviews), refused: cache.NewLRUExpireCache(maxReviews), inFlight: newInFlight(),
	}
}

// user returns whose token it is, errUnknown if the server says that it is nobody's, and another error if it does not
// say.
func (t *tokens) user(ctx context.Context, token, address string) (user.Info, error) {
	if _, refused := t.refused.Get(sha256.Sum256([]byte(token))); refused {
		return nil, errUnknown
	}
	return t.again(ctx, token, address)
}

// again is user for a token that was valid: a refusal that is remembered does not count. The reviews of an open
// request, whose context is patient, are not bounded by the address.
func (t *tokens) again(ctx context.Context, token, address string) (user.Info, error) {
	digest := sha256.Sum256([]byte(token))
	last, isKnown := t.known.Get(digest)
	if isKnown && time.Now().Before(last.(reviewedToken).until) {
		return last.(reviewedToken).user, nil
	}
	began, key := time.Now(), string(digest[:])
	if isPatient(ctx) { // it may wait for longer
		key += " patient"
	}
	answer, err, _ := t.asking.Do(key, func() (any, error) {
		if !isKnown && !isPatient(ctx) {
			release, err := t.inFlight.acquire(ctx, address)
			if err != nil {
				return identified{}, err
			}
			defer release()
		}
		status, left, err := t.review(ctx, token, address)
		switch {
		case isOutage(err) && isKnown && time.Since(last.(reviewedToken).at) < outageFor:
			known := last.(reviewedToken)
			known.until = time.Now().Add(tokenKnownFor)
			t.known.Add(digest, known, outageFor-time.Since(known.at))
			return identified{known.user, left}, nil
		case err != nil:
			return identified{left: left}, err
		case !status.Authenticated:
			t.known.Remove(digest)
			t.refused.Add(digest, struct{}{}, tokenKnownFor)
			return identified{left: left}, errUnknown
		}
		known := reviewedToken{reviewedUser(status.User), time.Now(), time.Now().Add(tokenKnownFor)}
		t.refused.Remove(digest)
		t.known.Add(digest, known, outageFor)
		return identified{known.user, left}, nil
	})
	addQueueTime(ctx, began, answer.(identified).left)
	if err != nil {
		return nil, err
	}
	return answer.(identified).user, nil
}

// identified is the answer to the review of a token, which has left the queue at a time.
type identified struct {
	user *user.DefaultInfo
	left time.Time
}

// reviewedAt returns when the server has last said whose token it is, zero if that is not remembered.
func (t *tokens) reviewedAt(token string) time.Time {
	last, isKnown := t.known.Get(sha256.Sum256([]byte(token)))
	if !isKnown {
		return time.Time{}
	}
	return last.(reviewedToken).at
}

// review asks the server who the bearer of a token is. left is when the review has left the queue.
func (t *tokens) review(ctx context.Context, token, address string) (_ authenticationv1.TokenReviewStatus,
	left time.Time, err error) {
	ctx, cancel, err := t.probe.reviewingFor(ctx, "address "+address)
	left = time.Now()
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, left, err
	}
	defer cancel()
	var answer *authenticationv1.TokenReview
	err = webhook.WithExponentialBackoff(ctx, reviewRetries, func() (err error) {
		asked := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		answer, err = t.reviews.TokenReviews().Create(ctx, asked, metav1.CreateOptions{})
		return err
	}, webhook.DefaultShouldRetry)
	if err != nil {
		klog.V(2).InfoS("The server does not review a token", "err", err)
		return authenticationv1.TokenReviewStatus{}, left, err
	}
	return answer.Status, left, nil
}

// reviewedUser returns the user of a review.
func reviewedUser(u authenticationv1.UserInfo) *user.DefaultInfo {
	extra := make(map[string][]string, len(u.Extra))
	for name, values := range u.Extra {
		extra[name] = values
	}
	return &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}
}
