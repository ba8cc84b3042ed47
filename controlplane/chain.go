package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apiserver"
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
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/component-base/featuregate"

	"github.com/keepwatch/keepwatch/controlplane/builtin"
)

// initialNamespaces exist from the start and can't be deleted, as on a real server.
var initialNamespaces = []string{"default", "kube-system"}

// drainTime is how long requests and watches may take to end once the server is asked to. What is
// left after it is cut off.
const drainTime = 2 * time.Second

// encodingsBudget is how many bytes of encoded objects are kept for the next who asks.
const encodingsBudget = 1 << 30

// noSpaceCheck is the check of /readyz that fails while etcd refuses writes. Its name is all that an
// answer tells of a reason. The server is as ready as it gets then: reads, watches and deletes go on.
const noSpaceCheck = "etcd-NOSPACE"

// chain is the two API servers, one delegating to the other, and the loops that belong to them.
type chain struct {
	listener   *trackingListener
	access     *access
	front      *genericapiserver.GenericAPIServer
	extensions *apiserver.CustomResourceDefinitions
	client     kubernetes.Interface
	informers  informers.SharedInformerFactory
	namespaces *namespaceCleaner // nil if the server is read-only
	readers    *readers
	// definitions are the informers of extensions.
	definitions *definitionInformers
	// broken gets the error of a step of the start that makes the others useless.
	broken chan error
	// drained is closed when, after the end was asked for, all requests are answered.
	drained <-chan struct{}
}

// newChain builds the servers; nothing of them runs yet.
func newChain(listener *trackingListener, access *access, storage *backend) (*chain, error) {
	kinds, err := builtin.NewRegistry()
	if err != nil {
		return nil, err
	}
	c := &chain{listener: listener, access: access, readers: newReaders(encodingsBudget), broken: make(chan error, 1)}
	if c.client, err = kubernetes.NewForConfig(access.own()); err != nil {
		return nil, err
	}
	c.readers.budget.Register(storage.registry)
	listener.register(storage.registry)
	c.informers = informers.NewSharedInformerFactory(c.client, 0)
	if !storage.readOnly() {
		meta, err := metadata.NewForConfig(access.own())
		if err != nil {
			return nil, err
		}
		if c.namespaces, err = newNamespaceCleaner(c.client, meta, c.informers.Core().V1().Namespaces()); err != nil {
			return nil, err
		}
	}
	rights := authorizerfactory.NewAlwaysAllowAuthorizer()
	config, err := c.config(kinds, storage, rights)
	if err != nil {
		return nil, err
	}
	c.drained = config.DrainedNotify()
	discovery := newMergedDiscovery(config.AggregatedDiscoveryGroupManager, builtin.Groups())
	if c.extensions, err = c.newExtensions(*config, discovery, storage); err != nil {
		return nil, err
	}
	completed := config.Complete(c.informers) // which adds an authenticator, of the server's own clients
	completed.Authentication.Authenticator = introducing(listener, withoutErrors(completed.Authentication.Authenticator))
	if c.front, err = completed.New("keepwatch", c.extensions.GenericAPIServer); err != nil {
		return nil, err
	}
	c.front.ShutdownTimeout = drainTime
	installMetrics(c.front.Handler.NonGoRestfulMux, storage.registry)
	served, err := kinds.Install(c.front, builtinOptions{storage, kinds}, rights)
	if err != nil {
		return nil, err
	}
	if err := c.readers.addBuiltin(kinds, served); err != nil {
		return nil, err
	}
	if err := c.readers.follow(c.extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()); err != nil {
		return nil, err
	}
	c.definitions = &definitionInformers{SharedInformerFactory: c.extensions.Informers}
	c.extensions.Informers = c.definitions // the library's start asks through it
	discovery.groups.attach(c.front.DiscoveryGroupManager)
	if err := installOpenAPI(c.front, c.extensions, config); err != nil {
		return nil, err
	}
	if storage.readOnly() {
		return c, nil
	}
	return c, c.front.AddPostStartHook("initial-namespaces", c.createInitialNamespaces)
}

// secureServing is how a listener's connections are served. The library closes one whose handshake or whose
// request's header takes more than 32 s, and one that is idle for 90 s.
func secureServing(listener net.Listener, access *access) *genericapiserver.SecureServingInfo {
	return &genericapiserver.SecureServingInfo{Listener: listener, Cert: access.cert, CipherSuites: ciphers}
}

// config is what both servers share.
func (c *chain) config(kinds *builtin.Registry, storage *backend, rights authorizer.Authorizer) (*genericapiserver.Config, error) {
	config := genericapiserver.NewConfig(kinds.Codecs)
	config.SecureServing = secureServing(c.listener, c.access)
	config.LoopbackClientConfig = c.access.own()
	config.Authentication.Authenticator = newAuthenticator(c.access.token)
	config.Authorization.Authorizer = rights
	config.EffectiveVersion = kubernetesVersion()
	config.EnableMetrics = false // see installMetrics
	config.ShutdownWatchTerminationGracePeriod = drainTime
	config.RESTOptionsGetter = builtinOptions{storage, kinds}
	config.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	// The library's own checks but the one of klog's flushing, whose goroutine never ends.
	config.HealthzChecks, config.LivezChecks, config.ReadyzChecks = nil, nil, nil
	config.AddHealthChecks(healthz.PingHealthz, healthz.NamedCheck("etcd", func(r *http.Request) error { return storage.ping(r.Context()) }))
	config.AddReadyzChecks(healthz.NamedCheck(noSpaceCheck, func(r *http.Request) error { return storage.hasSpace(r.Context()) }))
	chain := handlerChain(config.BuildHandlerChainFunc)
	if storage.kind == StoreStorage {
		chain = c.readers.chain
		config.FeatureGate = smallStacks()
		config.AddReadyzChecks(healthz.NamedCheck("storages", func(*http.Request) error {
			return errors.Join(context.Cause(storage.failed), c.readers.ready())
		}))
	}
	if storage.readOnly() {
		chain = chain.withoutWrites(kinds.Codecs)
	}
	config.BuildHandlerChainFunc = chain
	if err := setOpenAPI(config); err != nil {
		return nil, err
	}
	var err error
	config.AdmissionControl, err = c.newAdmission(config)
	return config, err
}

// smallStacks lets watches wait where the stack is small, and not below all the library's checks: a
// third of what an idle one costs. Only the chain of handlers goes by it.
func smallStacks() featuregate.FeatureGate {
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	utilruntime.Must(gates.SetFromMap(map[string]bool{string(features.APIServingWithRoutine): true}))
	return gates
}

// ciphers are those of TLS 1.2 that authenticate what they encrypt; Go's defaults have others with
// CBC, too. Those of TLS 1.3 cannot be chosen.
var ciphers = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// newExtensions is the server of CustomResourceDefinitions and custom resources. It gets what the
// front server doesn't know, and has the last word on what exists.
func (c *chain) newExtensions(config genericapiserver.Config, discovery mergedDiscovery, storage *backend) (*apiserver.CustomResourceDefinitions, error) {
	config.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	config.RESTOptionsGetter = definitionOptions{storage}
	config.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	config.AggregatedDiscoveryGroupManager = discovery
	notFound := notfoundhandler.New(config.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	extensions := apiserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: config},
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: customOptions{storage, c.readers},
			MasterCount:          1,
			ServiceResolver:      webhook.NewDefaultServiceResolver(),
			AuthResolverWrapper:  webhookAuthentication(config.LoopbackClientConfig),
		},
	}
	return extensions.Complete().New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
}
