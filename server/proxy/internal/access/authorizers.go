package access

import (
	"context"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/pause"
)

// authorizers finds out whether the server decides by more than roles, before it has allowed anything for another
// reason: a proxy that starts would leave out of personal views what another replica has shown. Such a server says that
// the rules of a user are incomplete. It is safe for concurrent use.
type authorizers struct {
	reviews     authorizationclient.AuthorizationV1Interface
	probe       *Probe
	permissions *permissions
	found       func() // is called when it turns out that there are others
	asked       atomic.Bool
}

func newAuthorizers(reviews authorizationclient.AuthorizationV1Interface, p *permissions) *authorizers {
	return &authorizers{reviews: authorizationclient.New(once{reviews.RESTClient()}), probe: p.probe, permissions: p,
		found: func() {}}
}

// run asks again and again until ctx ends. A nil *authorizers asks nothing.
func (a *authorizers) run(ctx context.Context) {
	for a != nil && ctx.Err() == nil {
		wait := knownFor
		if !a.ask(ctx) {
			wait = time.Second
		}
		_ = pause.For(ctx, wait)
	}
}

// ask asks once, and reports whether the server has answered. One that refuses, or does not have such reviews, has.
func (a *authorizers) ask(ctx context.Context) (answered bool) {
	ctx, cancel, err := a.probe.reviewing(ctx)
	if err != nil {
		return false
	}
	defer cancel()
	review, err := a.reviews.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: metav1.NamespaceDefault},
	}, metav1.CreateOptions{})
	refused := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		apierrors.IsMethodNotSupported(err)
	switch {
	case err != nil && !refused:
		return false
	case refused:
		klog.V(2).InfoS("The server does not say whether it decides by more than roles", "err", err)
	case review.Status.Incomplete && a.permissions.beyondRoles.CompareAndSwap(false, true):
		a.found()
	}
	a.asked.Store(true)
	return true
}

// beyondRoles reports whether the server may decide by more than roles.
func (a *authorizers) beyondRoles() bool { return a.permissions.beyondRoles.Load() || !a.asked.Load() }
