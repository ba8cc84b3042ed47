package proxy

import (
	"context"
	"crypto/subtle"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	mu       sync.Mutex
	known    user.Info // nil before the first review
	reviewed time.Time
}

func newOwnIdentity(token string, server *rest.Config, reviews authenticationclient.AuthenticationV1Interface) (*ownIdentity, error) {
	forwarder, err := newForwarder(server)
	return &ownIdentity{authorization: "Bearer " + token, forwarder: forwarder, reviews: reviews}, err
}

// sent reports whether a request has the token.
func (o *ownIdentity) sent(q *http.Request) bool {
	return o != nil && subtle.ConstantTimeCompare([]byte(q.Header.Get("Authorization")), []byte(o.authorization)) == 1
}

// forward forwards a request with the proxy's credentials.
func (o *ownIdentity) forward(w http.ResponseWriter, q *http.Request) {
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
	review, err := o.reviews.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		klog.V(2).InfoS("The server does not review the proxy's own identity", "err", err)
		return o.known, time.Since(o.reviewed) < outageFor
	}
	about := review.Status.UserInfo
	extra := map[string][]string{}
	for name, values := range about.Extra {
		extra[name] = values
	}
	o.known = &user.DefaultInfo{Name: about.Username, UID: about.UID, Groups: about.Groups, Extra: extra}
	o.reviewed = time.Now()
	return o.known, true
}
