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
	rolesAlone  atomic.Bool // the server has said so last
}

func newAuthorizers(reviews authorizationclient.AuthorizationV1Interface, p *permissions) *authorizers {
	return &authorizers{reviews: authorizationclient.New(once{reviews.RESTClient()}), probe: p.probe, permissions: p}
}

// run asks again and again until ctx ends. A nil *authorizers asks nothing.
func (a *authorizers) run(ctx context.Context) {
	for a != nil && ctx.Err() == nil {
		_ = pause.For(ctx, max(a.ask(ctx), time.Second))
	}
}

// ask asks once, and returns for how long the answer counts: zero if the server has not answered. One that refuses, or
// does not have such reviews, may decide by anything, and is asked again soon. A refusal by one that starts does not
// count: it denies what it will allow.
func (a *authorizers) ask(ctx context.Context) (counts time.Duration) {
	reviewing, cancel, err := a.probe.reviewing(ctx)
	if err != nil {
		return 0
	}
	defer cancel()
	review, err := a.reviews.SelfSubjectRulesReviews().Create(reviewing, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: metav1.NamespaceDefault},
	}, metav1.CreateOptions{})
	refused := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		apierrors.IsMethodNotSupported(err)
	counts = knownFor
	switch {
	case err != nil && !refused, refused && a.probe.Ready(ctx) != nil:
		return 0
	case refused:
		counts = unobservedFor
		klog.V(2).InfoS("The server does not say whether it decides by more than roles", "err", err)
	case review.Status.Incomplete:
		a.permissions.foundBeyondRoles()
	}
	a.rolesAlone.Store(!refused && !review.Status.Incomplete)
	return counts
}

// beyondRoles reports whether the server may decide by more than roles.
func (a *authorizers) beyondRoles() bool {
	return a.permissions.beyondRoles.Load() || !a.rolesAlone.Load()
}
