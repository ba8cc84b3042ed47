package proxy

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// ownIdentity is the proxy's identity at the server, and a token whose bearer acts under it. A nil *ownIdentity
// has no token.
type ownIdentity struct {
	authorization string // the header
	forwarder     *forwarder
	reviews       authenticationclient.AuthenticationV1Interface
	impersonates  bool // the proxy acts as another user

	mu       sync.Mutex
	known    user.Info // nil before the first review
	reviewed time.Time
	failed   time.Time // when the last review failed
}

func newOwnIdentity(token string, server *rest.Config, reviews authenticationclient.AuthenticationV1Interface) (*ownIdentity, error) {
	forwarder, err := newForwarder(server)
	return &ownIdentity{
		authorization: "Bearer " + token, forwarder: forwarder, reviews: reviews, impersonates: server.Impersonate.UserName != "",
	}, err
}

// sent reports whether a request has the token.
func (o *ownIdentity) sent(q *http.Request) bool {
	return o != nil && subtle.ConstantTimeCompare([]byte(q.Header.Get("Authorization")), []byte(o.authorization)) == 1
}

// forward forwards a request with the proxy's credentials. A proxy that itself acts as another user does not let the
// bearer choose a third one: the server would judge that by the rights of the proxy, in place of the user's.
func (o *ownIdentity) forward(w http.ResponseWriter, q *http.Request) {
	if o.impersonates && impersonates(q) {
		refuse(w, q, apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, "", errors.New("this proxy acts as another user already (--as): requests through it cannot have Impersonate- headers")))
		return
	}
	q = q.Clone(q.Context())
	q.Header.Del("Authorization")
	o.forwarder.ServeHTTP(w, q)
}

// user returns who the proxy is for the server.
func (o *ownIdentity) user(ctx context.Context) (user.Info, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.reviewed) < tokenKnownFor {
		return o.known, true
	}
	if time.Since(o.failed) < failureKnownFor {
		return o.known, time.Since(o.reviewed) < outageFor
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewFor) // others wait for it, too
	defer cancel()
	review, err := o.reviews.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		klog.V(2).InfoS("The server does not review the proxy's own identity", "err", err)
		o.failed = time.Now()
		return o.known, time.Since(o.reviewed) < outageFor
	}
	o.known, o.reviewed = reviewedUser(review.Status.UserInfo), time.Now()
	return o.known, true
}
