package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/klog/v2"
)

// ownIdentity is the proxy's identity at the server, and a token whose bearer acts under it. A nil *ownIdentity has no
// token.
type ownIdentity struct {
	token   string
	reviews authenticationclient.AuthenticationV1Interface
	probe   *Probe

	asking sync.Mutex // while the server is asked
	last   atomic.Pointer[ownReview]
}

// ownReview is who the proxy is for the server.
type ownReview struct {
	known    user.Info // nil before the first review
	reviewed time.Time
	failed   time.Time // when the last review failed
	failure  error     // nil unless it has
}

func newOwnIdentity(token string, reviews authenticationclient.AuthenticationV1Interface,
	probe *Probe) *ownIdentity {
	o := &ownIdentity{token: token, reviews: authenticationclient.New(once{reviews.RESTClient()}), probe: probe}
	o.last.Store(&ownReview{})
	return o
}

// sent reports whether a request has the token, and no other credentials in its header Authorization.
func (o *ownIdentity) sent(q *http.Request) bool {
	return o != nil && len(q.Header["Authorization"]) == 1 &&
		subtle.ConstantTimeCompare([]byte(bearerToken(q)), []byte(o.token)) == 1
}

// user returns who the proxy is for the server. While the server does not answer, one caller waits for it.
func (o *ownIdentity) user(ctx context.Context) (user.Info, bool) {
	if !o.probe.SilentSince().IsZero() {
		last := o.last.Load()
		return last.known, time.Since(last.reviewed) < outageFor
	}
	if !o.asking.TryLock() {
		if last := o.last.Load(); last.failed.After(last.reviewed) {
			return last.known, time.Since(last.reviewed) < outageFor
		}
		o.asking.Lock()
	}
	defer o.asking.Unlock()
	last := *o.last.Load()
	if time.Since(last.reviewed) < tokenKnownFor {
		return last.known, true
	}
	if time.Since(last.failed) < failureKnownFor {
		return last.known, time.Since(last.reviewed) < outageFor
	}
	review, err := o.review(ctx)
	if err != nil {
		klog.V(2).InfoS("The server does not review the proxy's own identity", "err", err)
		last.failed, last.failure = time.Now(), err
		if !isOutage(err) { // the credentials may be invalid
			last.known, last.reviewed = nil, time.Time{}
		}
		o.last.Store(&last)
		return last.known, time.Since(last.reviewed) < outageFor
	}
	last = ownReview{known: reviewedUser(review.Status.UserInfo), reviewed: time.Now()}
	o.last.Store(&last)
	return last.known, true
}

// again is user for an open request.
func (o *ownIdentity) again(ctx context.Context) (user.Info, error) {
	if known, ok := o.user(ctx); ok {
		return known, nil
	}
	return nil, errors.Join(errUndecided, o.last.Load().failure)
}

// errUndecided is why the identity of the proxy is not known.
var errUndecided = errors.New("the API server does not review the proxy's own identity")

// review asks the server who the proxy is. Others wait for the answer, too.
func (o *ownIdentity) review(ctx context.Context) (*authenticationv1.SelfSubjectReview, error) {
	ctx, cancel, err := o.probe.reviewing(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return o.reviews.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
}
