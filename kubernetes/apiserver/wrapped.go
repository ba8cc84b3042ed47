package apiserver

import (
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// Wrapped is a chain of API servers that Keepwatch answers the reads of.
type Wrapped struct {
	readers  *readers
	storages *storages
	complete map[schema.GroupResource]func(runtime.Object) // what registries set on each read
	// closed when the informers of Kubernetes' server have synchronized, or after startTimeout
	started chan struct{}
}

// Wrap makes the servers of config, which are created afterwards, open Keepwatch's storages with the
// options etcd, and puts the read path into the chain of handlers of the outermost one. A server of
// config may be nil; the fallback is the next inner one. Options of config are not read.
func Wrap(config *app.Config, etcd *genericoptions.EtcdOptions, o Options) (*Wrapped, error) {
	readers := newReaders(o.EncodingsBudget.Value())
	storages, err := useStorages(config, etcd, o.history(), readers.custom)
	if err != nil {
		return nil, err
	}
	w := &Wrapped{readers: readers, storages: storages, started: make(chan struct{})}
	if kube := config.KubeAPIs; kube != nil {
		if w.complete, err = defaultsOnRead(kube.Extra.ServiceIPRange); err != nil {
			return nil, err
		}
	}
	outermost := outermostOf(config)
	outermost.BuildHandlerChainFunc = w.readers.chain(outermost.BuildHandlerChainFunc)
	kube := config.KubeAPIs
	if kube == nil {
		return w, nil
	}
	informers := kube.ControlPlane.VersionedInformers
	if err := dropManagedFields(informers.Core().V1().Pods()); err != nil {
		return nil, err
	}
	return w, waitForAuthorizers(outermost, informers, w.started)
}

// registerMetrics registers the metrics of the read path with those of the process. A process with several
// servers registers those of one.
func (w *Wrapped) registerMetrics() { w.readers.budget.Register(registry{}) }

// outermostOf returns the config of the server that receives all requests.
func outermostOf(config *app.Config) *genericapiserver.Config {
	switch {
	case config.Aggregator != nil:
		return &config.Aggregator.GenericConfig.Config
	case config.KubeAPIs != nil:
		return config.KubeAPIs.ControlPlane.Generic
	}
	return &config.ApiExtensions.GenericConfig.Config
}

// AddReaders adds a reader for each built-in resource that the created servers have a route for and that
// our storages have. Until then, the API server's handlers answer.
func (w *Wrapped) AddReaders(outermost genericapiserver.DelegationTarget) error {
	var servers []*genericapiserver.GenericAPIServer
	for next := outermost; next != nil; next = next.NextDelegate() {
		if one, ok := next.(*genericapiserver.GenericAPIServer); ok {
			servers = append(servers, one)
		}
	}
	return w.readers.addBuiltin(servers, w.storages, w.complete)
}

// FollowDefinitions adds readers of custom resources from now on, by the informer of the server that
// serves them, which has not started.
func (w *Wrapped) FollowDefinitions(definitions apiextensionsinformers.CustomResourceDefinitionInformer) error {
	return w.readers.custom.Follow(definitions)
}
