package controlplane

import (
	"io"

	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/certificates"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/established"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/limitranges"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/policies"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/priorities"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/quotas"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/tolerations"
)

// newAdmission returns the admission of every write of built-in and custom resources, in kube-apiserver's order: it
// refuses objects in namespaces that don't exist or are terminating, applies LimitRanges, PriorityClasses and default
// tolerations, then the policies and webhooks that are registered in the API, and ResourceQuotas. Before all of them it
// refuses invalid policies, approvals and signatures of certificates without the right to, and with RBAC roles that
// grant more than their author has.
func (c *chain) newAdmission(config *genericapiserver.Config) (admission.Interface, error) {
	plugins := admission.NewPlugins()
	lifecycle.Register(plugins)
	limitranges.Register(plugins)
	priorities.Register(plugins, c.classes)
	tolerations.Register(plugins)
	mutatingpolicy.Register(plugins)
	mutating.Register(plugins)
	validatingpolicy.Register(plugins)
	validating.Register(plugins)
	parameters, err := dynamic.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	client := policies.Client{Interface: c.client, Versions: c.servedVersions}
	initializers := admission.PluginInitializers{
		initializer.New(client, parameters, c.informers, config.Authorization.Authorizer, utilfeature.DefaultFeatureGate,
			config.EffectiveVersion, c.plugins.Done(), policies.NewMapper(c.client.Discovery())),
		webhookinitializer.NewPluginInitializer(webhookAuthentication(config.LoopbackClientConfig), serviceResolver{c.client,
			c.serviceRanges}),
		withoutPolicies(builtin.Reviews()),
	}
	order := []string{
		lifecycle.PluginName, limitranges.PluginName, priorities.PluginName, tolerations.PluginName,
		mutatingpolicy.PluginName, mutating.PluginName, validatingpolicy.PluginName, validating.PluginName,
	}
	registered, err := plugins.NewFromPlugins(order, noPluginConfig{}, initializers, nil)
	if err != nil {
		return nil, err
	}
	handlers := []admission.Interface{
		established.Admission{},
		certificates.NewAdmission(config.Authorization.Authorizer),
		policies.NewAdmission(config.Authorization.Authorizer, c.client),
	}
	if c.escalation != nil {
		handlers = append(handlers, c.escalation)
	}
	return admission.NewChainHandler(append(handlers, registered, quotas.NewAdmission(c.client, c.quotas, &c.writes,
		c.plugins.Done()))...), nil
}

// servedVersions returns the versions of the groups of built-in kinds and custom resources.
func (c *chain) servedVersions() []schema.GroupVersion {
	versions := builtin.Versions()
	definitions := c.definitionLister.Load()
	if definitions == nil { // the server is not built yet
		return versions
	}
	listed, _ := (*definitions).List(labels.Everything()) // a list from a cache
	for _, definition := range listed {
		for _, version := range definition.Spec.Versions {
			versions = append(versions, schema.GroupVersion{Group: definition.Spec.Group, Version: version.Name})
		}
	}
	return versions
}

// withoutPolicies are the resources to which policies don't apply: requests that store nothing, and that a policy could
// make useless for everybody.
type withoutPolicies []schema.GroupResource

func (w withoutPolicies) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsExcludedAdmissionResources); ok {
		wants.SetExcludedAdmissionResources(w)
	}
}

// webhookAuthentication returns the credentials for calls of webhooks, for admission and for
// conversion: none.
func webhookAuthentication(own *rest.Config) webhook.AuthenticationInfoResolverWrapper {
	return webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, own, noop.NewTracerProvider())
}

// noPluginConfig gives no plugin a configuration file.
type noPluginConfig struct{}

func (noPluginConfig) ConfigFor(string) (io.Reader, error) { return nil, nil }
