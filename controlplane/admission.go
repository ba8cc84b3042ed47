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

	"github.com/keepwatch/keepwatch/controlplane/internal/certificates"
)

// newAdmission returns the admission of every write of built-in and custom resources: it refuses
// objects in namespaces that don't exist or are terminating, calls the webhooks that are
// registered in the API, refuses approvals and signatures of certificates without the right to, and with RBAC roles that
// grant more than their author has.
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
	registered, err := plugins.NewFromPlugins(order, noPluginConfig{}, initializers, nil)
	if err != nil {
		return nil, err
	}
	handlers := []admission.Interface{certificates.NewAdmission(config.Authorization.Authorizer)}
	if c.escalation != nil {
		handlers = append(handlers, c.escalation)
	}
	return admission.NewChainHandler(append(handlers, registered)...), nil
}

// webhookAuthentication returns the credentials for calls of webhooks, for admission and for
// conversion: none. Since there is no cluster network, webhooks must be registered by URL.
func webhookAuthentication(own *rest.Config) webhook.AuthenticationInfoResolverWrapper {
	return webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, own, noop.NewTracerProvider())
}

// noPluginConfig gives no plugin a configuration file.
type noPluginConfig struct{}

func (noPluginConfig) ConfigFor(string) (io.Reader, error) { return nil, nil }
