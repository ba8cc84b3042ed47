package apiserver

import (
	"runtime/debug"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// freeStartMemory makes a server return the garbage of its start to the operating system: once when the
// informers of Kubernetes' server have read everything, and once when the watch caches have decoded what they
// read. That garbage is as much as the data, and a server at rest would keep it.
func (w *Wrapped) freeStartMemory(server *genericapiserver.GenericAPIServer) error {
	return server.AddPostStartHook("keepwatch-start-memory", func(ctx genericapiserver.PostStartHookContext) error {
		go func() { // until the server ends; it must not wait for this to be ready
			select {
			case <-w.synced:
				debug.FreeOSMemory()
			case <-ctx.Done():
				return
			}
			if w.storages.waitWarmed(ctx) == nil {
				debug.FreeOSMemory()
			}
		}()
		return nil
	})
}
