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

// own is the proxy's own identity at the server, and the token whose bearer acts under it. A nil *own has no
// token.
type own struct {
	authorization string // the header
	forwarder     *forwarder
	reviews       authenticationclient.AuthenticationV1Interface

	mu    sync.Mutex
	known user.Info // nil before the server has told
	told  time.Time
}

func newOwn(token string, server *rest.Config, reviews authenticationclient.AuthenticationV1Interface) (*own, error) {
	forwarder, err := newForwarder(server)
	return &own{authorization: "Bearer " + token, forwarder: forwarder, reviews: reviews}, err
}

// sent reports whether a request bears the token.
func (o *own) sent(q *http.Request) bool {
	return o != nil && subtle.ConstantTimeCompare([]byte(q.Header.Get("Authorization")), []byte(o.authorization)) == 1
}

// forward forwards a request with the proxy's credentials.
func (o *own) forward(w http.ResponseWriter, q *http.Request) {
	q = q.Clone(q.Context())
	q.Header.Del("Authorization")
	o.forwarder.ServeHTTP(w, q)
}

// user returns who the proxy is for the server.
func (o *own) user(ctx context.Context) (user.Info, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.told) < tokenKnownFor {
		return o.known, true
	}
	review, err := o.reviews.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		klog.V(2).InfoS("The server does not tell the proxy's user", "err", err)
		return o.known, time.Since(o.told) < outageFor
	}
	about := review.Status.UserInfo
	extra := map[string][]string{}
	for name, values := range about.Extra {
		extra[name] = values
	}
	o.known = &user.DefaultInfo{Name: about.Username, UID: about.UID, Groups: about.Groups, Extra: extra}
	o.told = time.Now()
	return o.known, true
}
