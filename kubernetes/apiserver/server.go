package apiserver

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// newServer completes a configuration and returns the outermost of kube-apiserver's servers, which
// delegates to the others.
func newServer(config *app.Config, o Options) (*aggregatorapiserver.APIAggregator, error) {
	if o.Reads == ReadsUpstream {
		completed, err := config.Complete()
		if err != nil {
			return nil, err
		}
		return app.CreateServerChain(completed)
	}
	wrapped, err := Wrap(config, config.Options.Etcd, o)
	if err != nil {
		return nil, err
	}
	wrapped.registerMetrics()
	completed, err := config.Complete()
	if err != nil {
		return nil, err
	}
	aggregator, err := wrapped.CreateServerChain(completed)
	if err != nil {
		return nil, err
	}
	return aggregator, wrapped.freeStartMemory(aggregator.GenericAPIServer)
}

// CreateServerChain creates the servers of a completed config that Wrap has changed, as app.CreateServerChain does, and
// adds readers of their resources.
func (w *Wrapped) CreateServerChain(config app.CompletedConfig) (*aggregatorapiserver.APIAggregator, error) {
	aggregator, extensions, err := createServers(config)
	if err != nil {
		return nil, err
	}
	if err := w.AddReaders(aggregator.GenericAPIServer); err != nil {
		return nil, err
	}
	if err := w.readers.remote.follow(
		aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices()); err != nil {
		return nil, err
	}
	return aggregator, w.FollowDefinitions(extensions.Informers.Apiextensions().V1().CustomResourceDefinitions())
}

// createServers creates the servers as app.CreateServerChain does, which returns only the outermost one.
func createServers(config app.CompletedConfig) (*aggregatorapiserver.APIAggregator,
	*apiextensionsapiserver.CustomResourceDefinitions, error) {
	notFound := notfoundhandler.New(config.KubeAPIs.ControlPlane.Generic.Serializer,
		genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	extensions, err := config.ApiExtensions.New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, nil, err
	}
	kube, err := config.KubeAPIs.New(extensions.GenericAPIServer)
	if err != nil {
		return nil, nil, err
	}
	definitions := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	aggregator, err := controlplaneapiserver.CreateAggregatorServer(config.Aggregator, kube.ControlPlane.GenericAPIServer,
		extensions.Informers.Apiextensions().V1().CustomResourceDefinitions(),
		config.ApiExtensions.GenericConfig.MergedResourceConfig.ResourceEnabled(definitions), versionPriorities())
	return aggregator, extensions, err
}
