package proxy

import (
	"context"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// undecidedFor is how long a watch stays open that may no longer be allowed, while the server does not decide.
const undecidedFor = 10 * time.Second

// guard returns a context that ends when the server no longer allows a request that it has allowed, and a
// function that the caller calls at the end of the request. changed is from the decision that allowed it.
func (p *permissions) guard(ctx context.Context, attributes authorizer.Attributes, changed <-chan struct{}) (guarded context.Context, end func()) {
	guarded, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		defer cancel()
		again := time.NewTimer(p.decidedFor()) // for what no change of roles shows: webhooks, or roles that the proxy may not read
		defer again.Stop()
		for allowed := true; allowed; {
			select {
			case <-changed:
			case <-again.C:
			case <-guarded.Done():
				return
			}
			allowed, changed = p.stillAllowed(guarded, attributes)
			again.Reset(p.decidedFor())
		}
	})
	return guarded, func() {
		cancel()
		running.Wait()
	}
}

// stillAllowed is allowed for an open watch, which no decision ends after undecidedFor. A denial counts when the server
// repeats it while it is ready.
func (p *permissions) stillAllowed(ctx context.Context, attributes authorizer.Attributes) (bool, <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, undecidedFor)
	defer cancel()
	for {
		allowed, changed, err := p.allowed(ctx, attributes)
		if err == nil && !allowed {
			allowed, changed, err = p.confirmed(ctx, attributes)
		}
		if err == nil || ctx.Err() != nil {
			return err == nil && allowed, changed
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
