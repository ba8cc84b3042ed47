package controlplane

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	definitionlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/featuregate"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/apiservices"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/certificates"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/established"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/flowcontrol"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/garbage"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/nsdefaults"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/policies"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/quotas"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/rbac"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/services"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/serving"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/tokens"
	"github.com/keepwatch/keepwatch/server/servemetrics"
	"github.com/keepwatch/keepwatch/server/simulation"
)

// encodingsBudget is the number of bytes of encoded objects that the read path caches.
const encodingsBudget = 1 << 30

// noSpaceCheck is the check of /readyz that fails while etcd refuses writes. The response contains
// nothing of a failed check except its name. waitReady excludes this check: the server starts although
// etcd refuses writes, since reads, watches and deletes work.
const noSpaceCheck = "etcd-NOSPACE"

// storagesCheck is the check of /readyz that fails until the watch caches of all built-in resources have caught up
// with the database, or when one has failed.
const storagesCheck = "storages"

// chain is the two API servers, one delegating to the other, and their loops.
type chain struct {
	options     Options
	listener    *serving.Listener
	credentials *serving.Credentials
	issuer      *tokens.Issuer
	accounts    *accountObjects
	front       *genericapiserver.GenericAPIServer
	extensions  *apiserver.CustomResourceDefinitions
	client      kubernetes.Interface
	informers   informers.SharedInformerFactory
	namespaces  *namespaceCleaner // nil if the server is read-only
	quotas      *quotaObjects
	writes      quotas.Writes
	classes     *stored[*schedulingv1.PriorityClass]
	defaults    *nsdefaults.Creator    // nil without controllers
	signer      *certificates.Signer   // nil without controllers
	collector   *garbage.Collector     // nil without controllers
	opener      *definitionOpener      // nil without controllers
	used        *quotas.Controller     // nil without controllers
	workloads   *simulation.Cluster    // nil without a simulation
	policy      *rbac.Policy           // nil unless RBAC is enforced
	escalation  *rbac.Escalation       // nil unless RBAC is enforced
	aggregator  *rbac.Aggregator       // nil unless RBAC is enforced, and if the server is read-only
	registrar   *apiservices.Registrar // nil if the server is read-only
	flows       flowcontrol.Storage    // empty if the server is read-only
	registered  atomic.Bool            // registrar has the built-in versions; false if the server is read-only
	routes      builtin.Routes         // of the front server
	readers     *readers
	// plugins is the context of the loops of admission plugins, which begin when they are built.
	plugins     context.Context
	stopPlugins context.CancelFunc
	// policyChecker is nil without controllers.
	policyChecker *policies.Checker
	// definitionLister lists the definitions of extensions; nil until extensions is built.
	definitionLister atomic.Pointer[definitionlisters.CustomResourceDefinitionLister]
	// definitions are the informers of extensions.
	definitions *definitionInformers
	// serviceRanges are the addresses that Services get.
	serviceRanges services.Ranges
	// startFailed receives an error that makes the rest of the start useless.
	startFailed chan error
	// drained is closed when all requests are answered after the server was stopped.
	drained <-chan struct{}
}

// newChain builds the servers. It starts nothing.
func newChain(
	listener *serving.Listener, credentials *serving.Credentials, issuer *tokens.Issuer, storage *backend, options Options,
) (_ *chain, err error) {
	kinds, err := builtin.NewRegistry()
	if err != nil {
		return nil, err
	}
	c := &chain{
		options: options, listener: listener, credentials: credentials, issuer: issuer,
		accounts: &accountObjects{}, quotas: &quotaObjects{}, classes: &stored[*schedulingv1.PriorityClass]{},
		readers: newReaders(encodingsBudget), startFailed: make(chan error, 1),
	}
	c.serviceRanges, err = services.ParseRanges(options.ServiceClusterIPRange, options.ServiceNodePortRange)
	if err != nil {
		return nil, err
	}
	c.plugins, c.stopPlugins = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			c.stopPlugins()
		}
	}()
	if c.client, err = kubernetes.NewForConfig(credentials.LoopbackConfig()); err != nil {
		return nil, err
	}
	c.readers.budget.Register(storage.registry)
	listener.Register(storage.registry)
	c.informers = informers.NewSharedInformerFactory(c.client, 0)
	meta, err := metadata.NewForConfig(credentials.LoopbackConfig())
	if err != nil {
		return nil, err
	}
	namespaces := c.informers.Core().V1().Namespaces()
	if !storage.readOnly() {
		c.namespaces, err = newNamespaceCleaner(c.client, meta, namespaces, c.namespacedCustomResources)
		if err != nil {
			return nil, err
		}
	}
	if options.Controllers && !storage.readOnly() {
		if c.defaults, err = nsdefaults.New(c.client, namespaces, credentials.ClientConfig().CAData); err != nil {
			return nil, err
		}
		if c.signer, err = certificates.NewSigner(c.client, credentials.IssueClient); err != nil {
			return nil, err
		}
		validating := c.informers.Admissionregistration().V1().ValidatingAdmissionPolicies()
		if c.policyChecker, err = policies.NewChecker(c.client, validating); err != nil {
			return nil, err
		}
		c.collector = garbage.New(c.client.Discovery(), meta)
		storage.collector = c.collector
		c.used = quotas.NewController(c.client, meta, c.client.Discovery(), c.quotas, &c.writes)
		if options.Simulation != nil {
			if c.workloads, err = simulation.New(c.client, options.Simulation.clock); err != nil {
				return nil, err
			}
		}
	}
	rights, err := c.newAuthorizer(storage.readOnly())
	if err != nil {
		return nil, err
	}
	config, err := c.config(kinds, storage, rights)
	if err != nil {
		return nil, err
	}
	c.drained = config.DrainedNotify()
	discovery := newMergedDiscovery(config.AggregatedDiscoveryGroupManager, builtin.Groups())
	if c.extensions, err = c.newExtensions(*config, discovery, storage); err != nil {
		return nil, err
	}
	definitions := c.extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	lister := definitions.Lister()
	c.definitionLister.Store(&lister)
	completed := config.Complete(c.informers) // adds the authenticator of the server's own clients
	identities := builtin.Identities{Authenticator: completed.Authentication.Authenticator, Issuer: issuer}
	withoutErrors := serving.WithoutErrors(identities.Authenticator)
	completed.Authentication.Authenticator = serving.MarkingAuthenticated(listener, withoutErrors)
	if c.front, err = completed.New("keepwatch", c.extensions.GenericAPIServer); err != nil {
		return nil, err
	}
	c.front.ShutdownTimeout = drainTimeout
	servemetrics.Install(c.front.Handler.NonGoRestfulMux, storage.registry)
	c.installAdvance(c.front.Handler.NonGoRestfulMux, kinds.Codecs)
	settings := builtin.Settings{ServiceRanges: c.serviceRanges, EventTTL: c.options.EventTTL}
	served, err := kinds.Install(c.front, config, &c.routes, settings, rights, identities)
	if err != nil {
		return nil, err
	}
	c.accounts.set(served)
	stores := storesOf(served)
	c.quotas.store = stores[corev1.Resource("resourcequotas")]
	c.classes.store = stores[schedulingv1.Resource("priorityclasses")]
	if !storage.readOnly() {
		if err := c.newRegistrar(stores); err != nil {
			return nil, err
		}
	}
	if err := issuer.InstallOpenID(c.front.Handler.GoRestfulContainer, credentials.URL()); err != nil {
		return nil, err
	}
	if err := c.readers.addBuiltin(kinds, served); err != nil {
		return nil, err
	}
	var transforms []cache.TransformFunc
	if len(options.Etcd.Servers) == 0 { // no other server is expected to have the same data
		transforms = append(transforms, established.Antedate)
	}
	if err := c.readers.custom.Follow(definitions, transforms...); err != nil {
		return nil, err
	}
	if c.collector != nil {
		if c.opener, err = newDefinitionOpener(c.collector, meta, lister, definitions.Informer()); err != nil {
			return nil, err
		}
	}
	c.definitions = &definitionInformers{SharedInformerFactory: c.extensions.Informers}
	c.extensions.Informers = c.definitions // apiextensions-apiserver's hooks use them
	discovery.groups.attach(c.front.DiscoveryGroupManager)
	if err := installOpenAPI(c.front, &c.routes, c.extensions, config); err != nil {
		return nil, err
	}
	return c, c.addPostStartHooks(storage.readOnly())
}

// newAuthorizer returns who decides what users may do.
func (c *chain) newAuthorizer(readOnly bool) (builtin.Authorizer, error) {
	if c.options.Authorization != RBAC {
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	}
	c.policy = rbac.NewPolicy(c.client)
	authorizer := rbac.NewAuthorizer(c.policy)
	c.escalation = rbac.NewEscalation(authorizer)
	if readOnly {
		return authorizer, nil
	}
	var err error
	c.aggregator, err = rbac.NewAggregator(c.client, c.policy)
	return authorizer, err
}

// addPostStartHooks adds what the server does before it is ready. A read-only server writes nothing.
func (c *chain) addPostStartHooks(readOnly bool) error {
	err := errors.Join(
		c.front.AddPostStartHook("kube-apiserver-autoregistration", c.registerVersions),
		c.front.AddPostStartHook("priority-and-fairness-config-producer", c.createFlowControl),
	)
	if err != nil {
		return err
	}
	if !readOnly {
		return c.front.AddPostStartHook("initial-objects", c.createInitialObjects)
	}
	if c.policy == nil {
		return nil
	}
	return c.front.AddPostStartHook("rbac", func(hook genericapiserver.PostStartHookContext) error {
		c.followRoles(hook, func(context.Context) {})
		return nil
	})
}

// config returns the configuration that both servers share.
func (c *chain) config(
	kinds *builtin.Registry, storage *backend, rights authorizer.Authorizer,
) (*genericapiserver.Config, error) {
	config := genericapiserver.NewConfig(kinds.Codecs)
	config.SecureServing = c.credentials.SecureServing(c.listener)
	config.LoopbackClientConfig = c.credentials.LoopbackConfig()
	config.Authentication.APIAudiences = c.issuer.Audiences()
	ofTokens := c.issuer.Authenticator(c.accounts.get)
	config.Authentication.Authenticator = c.credentials.Authenticator(ofTokens, c.issuer.Audiences())
	config.Authorization.Authorizer = rights
	if c.options.Refused != nil {
		config.Authorization.Authorizer = namingUsers{rights}
	}
	config.EffectiveVersion = kubernetesVersion(c.options.Version)
	config.EnableMetrics = false // see servemetrics.Install
	config.ShutdownWatchTerminationGracePeriod = drainTimeout
	config.RESTOptionsGetter = builtinOptions{storage, kinds}
	config.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	// The default checks except that of klog's flushing, whose goroutine never ends.
	config.HealthzChecks, config.LivezChecks, config.ReadyzChecks = nil, nil, nil
	config.AddHealthChecks(healthz.PingHealthz, healthz.NamedCheck("etcd", func(r *http.Request) error {
		return storage.ping(r.Context())
	}))
	config.AddHealthChecks(c.aggregatorChecks()...)
	config.AddReadyzChecks(healthz.NamedCheck(noSpaceCheck, func(r *http.Request) error {
		return storage.hasSpace(r.Context())
	}))
	chain := handlerChain(genericapiserver.DefaultBuildHandlerChain)
	if c.options.Refused != nil {
		chain = chain.reporting(c.options.Refused)
	}
	if c.options.Middleware != nil {
		chain = chain.around(c.options.Middleware)
	}
	if storage.kind == StoreStorage {
		chain = c.readers.chain(chain)
		config.FeatureGate = smallStacks()
		config.AddReadyzChecks(healthz.NamedCheck(storagesCheck, func(*http.Request) error {
			return errors.Join(context.Cause(storage.failed), c.readers.ready())
		}))
	}
	if storage.readOnly() {
		chain = chain.withoutWrites(kinds.Codecs)
	}
	config.BuildHandlerChainFunc = chain.around(c.routes.Before)
	if err := setOpenAPI(config); err != nil {
		return nil, err
	}
	var err error
	config.AdmissionControl, err = c.newAdmission(config)
	return config, err
}

// smallStacks enables APIServingWithRoutine: watches wait in a goroutine of their own, whose small
// stack is a third of the memory of an idle watch. Only the handler chain reads this gate.
func smallStacks() featuregate.FeatureGate {
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	utilruntime.Must(gates.SetFromMap(map[string]bool{string(features.APIServingWithRoutine): true}))
	return gates
}

// newExtensions returns the server of CustomResourceDefinitions and custom resources. It receives the
// requests that the front server doesn't route, and answers 404 to those that it doesn't route either.
func (c *chain) newExtensions(
	config genericapiserver.Config, discovery mergedDiscovery, storage *backend,
) (*apiserver.CustomResourceDefinitions, error) {
	config.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	config.RESTOptionsGetter = definitionOptions{storage}
	config.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	config.AggregatedDiscoveryGroupManager = discovery
	notFound := notfoundhandler.New(config.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	extensions := apiserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: config},
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: customOptions{storage, c.readers.custom},
			MasterCount:          1,
			ServiceResolver:      serviceResolver{c.client, c.serviceRanges},
			AuthResolverWrapper:  webhookAuthentication(config.LoopbackClientConfig),
		},
	}
	return extensions.Complete().New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
}
