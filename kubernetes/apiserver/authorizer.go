package apiserver

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
)

const (
	// authorizationTimeout bounds how long a request waits for the informers of authorizers.
	authorizationTimeout = 10 * time.Second
	// startTimeout is how long after a start requests wait for them. An informer may never synchronize: when an object in
	// etcd cannot be decrypted, say.
	startTimeout = 5 * time.Minute
)

// startingAuthorizer asks an authorizer again about a request that it does not allow, when the informers
// that it reads have synchronized. kube-apiserver accepts requests before that, and refuses those that
// RBAC allows. client-go does not resume a refused watch: its informers read everything again.
type startingAuthorizer struct {
	authorizer.Authorizer
	started <-chan struct{}
}

// waitForAuthorizers makes a server's authorizer a startingAuthorizer. The informers are those that
// authorizers read; started is closed when they have synchronized, or after startTimeout.
func waitForAuthorizers(server *genericapiserver.Config, informers informers.SharedInformerFactory,
	started chan struct{}) error {
	server.Authorization.Authorizer = startingAuthorizer{server.Authorization.Authorizer, started}
	return server.AddPostStartHook("keepwatch-authorization-informers",
		func(ctx genericapiserver.PostStartHookContext) error {
			informers.Start(ctx.Done()) // the hook that starts them may run later
			// Until the server ends: /livez waits for hooks, and must not wait for informers.
			go closeStarted(ctx, informers.WaitForCacheSync, started)
			return nil
		})
}

// closeStarted closes started when a wait for informers has ended, or after startTimeout, and not when the server ends
// before that.
func closeStarted(ctx context.Context, wait func(stop <-chan struct{}) map[reflect.Type]bool, started chan<- struct{}) {
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	wait(starting.Done())
	if ctx.Err() == nil {
		close(started)
	}
}

// Authorize decides about a request.
func (a startingAuthorizer) Authorize(ctx context.Context,
	request authorizer.Attributes) (authorizer.Decision, string, error) {
	final := a.hasStarted()
	decision, reason, err := a.Authorizer.Authorize(ctx, request)
	if final || decision == authorizer.DecisionAllow || !a.wait(ctx) {
		return decision, reason, err
	}
	return a.Authorizer.Authorize(ctx, request)
}

// ConditionsAwareAuthorize decides about a request, maybe with conditions.
func (a startingAuthorizer) ConditionsAwareAuthorize(ctx context.Context,
	request authorizer.Attributes) authorizer.ConditionsAwareDecision {
	final := a.hasStarted()
	decision := a.Authorizer.ConditionsAwareAuthorize(ctx, request)
	if final || !decision.IsNoOpinion() && !decision.IsDeny() || !a.wait(ctx) {
		return decision
	}
	return a.Authorizer.ConditionsAwareAuthorize(ctx, request)
}

func (a startingAuthorizer) hasStarted() bool {
	select {
	case <-a.started:
		return true
	default:
		return false
	}
}

// wait waits for the informers, and reports whether the request is to be decided again.
func (a startingAuthorizer) wait(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, authorizationTimeout)
	defer cancel()
	select {
	case <-a.started:
		return true
	case <-ctx.Done():
		return false
	}
}
