package apiserver

import (
	"context"
	"reflect"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"

	"github.com/keepwatch/keepwatch/server/startauthorizer"
)

// startTimeout is how long after a start requests wait for the informers of authorizers. An informer may never
// synchronize: when an object in etcd cannot be decrypted, say.
const startTimeout = 5 * time.Minute

// waitForAuthorizers makes a server's authorizer one that waits at the start. The informers are those that
// authorizers read; started is closed when they have synchronized, or after startTimeout.
func waitForAuthorizers(server *genericapiserver.Config, informers informers.SharedInformerFactory,
	started chan struct{}) error {
	server.Authorization.Authorizer = startauthorizer.New(server.Authorization.Authorizer, started)
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
