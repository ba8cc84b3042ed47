package controlplane

import (
	"io"

	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// newAdmission returns the admission of every write of built-in and custom resources: it refuses
// objects in namespaces that don't exist or are terminating, and calls the webhooks that are
// registered in the API.
func (c *chain) newAdmission(config *genericapiserver.Config) (admission.Interface, error) {
	plugins := admission.NewPlugins()
	lifecycle.Register(plugins)
	mutating.Register(plugins)
	validating.Register(plugins)
	initializers := admission.PluginInitializers{
		// Nothing here needs a dynamic client or a REST mapper.
		initializer.New(c.client, nil, c.informers, config.Authorization.Authorizer, utilfeature.DefaultFeatureGate,
			config.EffectiveVersion, config.DrainedNotify(), nil),
		webhookinitializer.NewPluginInitializer(webhookAuthentication(config.LoopbackClientConfig), webhook.NewDefaultServiceResolver()),
	}
	order := []string{lifecycle.PluginName, mutating.PluginName, validating.PluginName}
	return plugins.NewFromPlugins(order, noPluginConfig{}, initializers, nil)
}

// webhookAuthentication returns the credentials for calls of webhooks, for admission and for
// conversion: none. Since there is no cluster network, webhooks must be registered by URL.
func webhookAuthentication(own *rest.Config) webhook.AuthenticationInfoResolverWrapper {
	return webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, own, noop.NewTracerProvider())
}

// noPluginConfig gives no plugin a configuration file.
type noPluginConfig struct{}

func (noPluginConfig) ConfigFor(string) (io.Reader, error) { return nil, nil }
