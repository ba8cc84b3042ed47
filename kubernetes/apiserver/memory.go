package apiserver

import (
	"runtime/debug"

	corev1 "k8s.io/api/core/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	coreinformers "k8s.io/client-go/informers/core/v1"
)

// dropManagedFields makes the informer of pods, which authentication, authorization and admission read, store
// pods without managed fields, which are a large part of a pod, and which these readers do not use. The
// informer must not have started.
func dropManagedFields(pods coreinformers.PodInformer) error {
	return pods.Informer().SetTransform(func(object any) (any, error) {
		if pod, ok := object.(*corev1.Pod); ok {
			pod.ManagedFields = nil
		}
		return object, nil
	})
}

// freeStartMemory makes a server return the garbage of its start to the operating system: once when the
// informers of Kubernetes' server have read everything, and once when the watch caches have decoded what they
// read. That garbage is as much as the data, and a server at rest would keep it.
func (w *Wrapped) freeStartMemory(server *genericapiserver.GenericAPIServer) error {
	return server.AddPostStartHook("keepwatch-start-memory", func(ctx genericapiserver.PostStartHookContext) error {
		go func() { // until the server ends; it must not wait for this to be ready
			select {
			case <-w.started:
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
