// Package startauthorizer lets the requests of a starting server wait for the rules that its authorizer reads from the
// server itself.
package startauthorizer

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// timeout bounds how long a request waits for the rules.
const timeout = 10 * time.Second

// Authorizer asks an authorizer again about a request that it does not allow, when the rules that it decides by have
// been read. kube-apiserver accepts requests before that, and refuses those that RBAC allows. client-go does not resume
// a refused watch: its informers read everything again.
type Authorizer struct {
	authorizer.Authorizer
	started <-chan struct{}
}

// New returns an authorizer that decides as another one. started is closed when the rules of that have been read.
func New(a authorizer.Authorizer, started <-chan struct{}) Authorizer { return Authorizer{a, started} }

// Authorize decides about a request.
func (a Authorizer) Authorize(ctx context.Context, request authorizer.Attributes) (authorizer.Decision, string, error) {
	final := a.hasStarted()
	decision, reason, err := a.Authorizer.Authorize(ctx, request)
	if final || decision == authorizer.DecisionAllow || !a.Wait(ctx) {
		return decision, reason, err
	}
	return a.Authorizer.Authorize(ctx, request)
}

// ConditionsAwareAuthorize decides about a request, maybe with conditions.
func (a Authorizer) ConditionsAwareAuthorize(ctx context.Context,
	request authorizer.Attributes) authorizer.ConditionsAwareDecision {
	final := a.hasStarted()
	decision := a.Authorizer.ConditionsAwareAuthorize(ctx, request)
	if final || !decision.IsNoOpinion() && !decision.IsDeny() || !a.Wait(ctx) {
		return decision
	}
	return a.Authorizer.ConditionsAwareAuthorize(ctx, request)
}

func (a Authorizer) hasStarted() bool {
	select {
	case <-a.started:
		return true
	default:
		return false
	}
}

// Wait waits until the rules have been read, for 10 seconds, and reports whether they have.
func (a Authorizer) Wait(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case <-a.started:
		return true
	case <-ctx.Done():
		return false
	}
}
