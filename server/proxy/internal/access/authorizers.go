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
// the rules of a user are incomplete. That ends when it says twice in a row that they are complete: a part of its
// replicas may have other authorizers. It is safe for concurrent use.
type authorizers struct {
	reviews     authorizationclient.AuthorizationV1Interface
	probe       *Probe
	permissions *permissions
	rolesAlone  atomic.Bool // the server says so
	complete    int         // answers in a row that rules are, after the first one that counts; ask alone uses it
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
// does not have such reviews, may decide by anything, and is asked again soon. An answer of one that starts changes
// nothing: it denies what it will allow, and does not have all rules.
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
	if err != nil && !refused {
		return 0
	}
	before, complete := a.rolesAlone.Load(), a.complete+1
	if refused || review.Status.Incomplete {
		complete = -1
	}
	if now := complete > 0; now != before {
		if a.probe.Ready(ctx) != nil {
			return 0
		}
		a.rolesAlone.Store(now)
		a.permissions.found()
	}
	a.complete = complete
	if refused {
		klog.V(2).InfoS("The server does not say whether it decides by more than roles", "err", err)
	}
	if refused || complete == 0 {
		return unobservedFor
	}
	return knownFor
}

// beyondRoles reports whether the server may decide by more than roles.
func (a *authorizers) beyondRoles() bool {
	return a.permissions.beyondRoles.Load() || !a.rolesAlone.Load()
}
