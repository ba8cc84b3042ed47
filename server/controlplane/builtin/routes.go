package builtin

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emicklei/go-restful/v3"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	openapi "k8s.io/kube-openapi/pkg/builder3"
	openapiutil "k8s.io/kube-openapi/pkg/util"
)

// Routes has the routes of the built-in groups on one server. The first server of a process installs all of them when
// it is built. The following ones install those of a group other than the core group at its first request: a test
// requests few groups, and routes with their regular expressions were half of a server's heap. Its methods may be
// called concurrently after [Registry.Install].
type Routes struct {
	later map[string]func() error // installs the routes of a group, once
}

// shared is what the first server of a process makes for all: nothing in it depends on a server's options.
var shared struct {
	mu        sync.Mutex
	converter managedfields.TypeConverter // of server-side apply
	resources map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery
}

// Before returns a handler that installs the routes that a request needs before next receives it.
func (r *Routes) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if err := r.installFor(q.URL.Path); err != nil {
			responsewriters.InternalError(w, q, err)
			return
		}
		next.ServeHTTP(w, q)
	})
}

func (r *Routes) installFor(path string) error {
	if path == "/" || path == "/index.html" { // they list the paths of all groups
		return r.InstallAll()
	}
	below, ok := strings.CutPrefix(path, genericapiserver.APIGroupPrefix+"/")
	if !ok {
		return nil
	}
	group, _, _ := strings.Cut(below, "/")
	if install := r.later[group]; install != nil {
		return install()
	}
	return nil
}

// InstallAll installs the routes of all groups.
func (r *Routes) InstallAll() error {
	for _, install := range r.later {
		if err := install(); err != nil {
			return err
		}
	}
	return nil
}

// installation serves the built-in groups on one server.
type installation struct {
	*Registry
	server    *genericapiserver.GenericAPIServer
	config    *genericapiserver.Config // of server
	byVersion map[schema.GroupVersion]map[string]rest.Storage
	converter managedfields.TypeConverter
}

// run publishes the groups in the order of the table, and installs their routes or leaves that to routes.
func (i installation) run(routes *Routes) error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	first := shared.resources == nil
	resources := shared.resources
	if first {
		var err error
		if shared.converter, err = i.newConverter(); err != nil {
			return err
		}
		resources = map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery{}
	}
	i.converter = shared.converter
	routes.later = map[string]func() error{}
	for _, group := range Groups() {
		if first || group == corev1.GroupName {
			if err := i.addRoutes(group, resources); err != nil {
				return err
			}
		} else {
			routes.later[group] = sync.OnceValue(func() error {
				return i.addRoutes(group, map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery{})
			})
		}
		i.publish(group, resources)
	}
	shared.resources = resources
	return nil
}

// newConverter returns the converter of server-side apply for all types.
func (i installation) newConverter() (managedfields.TypeConverter, error) {
	var names []string
	for gv, storages := range i.byVersion {
		for _, storage := range storages {
			kind, err := genericapi.GetResourceKind(gv, storage, i.Scheme)
			if err != nil {
				return nil, err
			}
			object, err := i.Scheme.New(kind)
			if err != nil {
				return nil, err
			}
			names = append(names, openapiutil.GetCanonicalTypeName(object))
		}
	}
	schemas, err := openapi.BuildOpenAPIDefinitionsForResources(i.config.OpenAPIV3Config, names...)
	if err != nil {
		return nil, err
	}
	return managedfields.NewTypeConverter(schemas, false)
}

// publish adds a group to discovery, and its storages to the checks and the end of the server.
func (i installation) publish(group string, resources map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery) {
	manager := i.server.AggregatedDiscoveryGroupManager
	if group == corev1.GroupName {
		manager = i.server.AggregatedLegacyDiscoveryGroupManager
	} else {
		i.server.DiscoveryGroupManager.AddGroup(i.listed(group))
	}
	for _, gv := range i.versions(group) {
		manager.AddGroupVersion(group, apidiscoveryv2.APIVersionDiscovery{
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Version: gv.Version, Resources: resources[gv],
		})
		for resource, storage := range i.byVersion[gv] {
			if checked, ok := storage.(rest.StorageWithReadiness); ok {
				i.server.StorageReadinessHook.RegisterStorage(metav1.GroupVersionResource{Group: group, Version: gv.Version,
					Resource: resource}, checked)
			}
			i.server.RegisterDestroyFunc(storage.Destroy)
		}
	}
}

// versions returns those versions of a group that have resources, the preferred one first.
func (i installation) versions(group string) []schema.GroupVersion {
	return slices.DeleteFunc(i.Scheme.PrioritizedVersionsForGroup(group), func(gv schema.GroupVersion) bool {
		return len(i.byVersion[gv]) == 0
	})
}

// listed returns the group as /apis lists it.
func (i installation) listed(group string) metav1.APIGroup {
	listed := metav1.APIGroup{Name: group}
	for _, gv := range i.versions(group) {
		listed.Versions = append(listed.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(),
			Version: gv.Version})
	}
	listed.PreferredVersion = listed.Versions[0]
	return listed
}

// addRoutes installs the routes of a group, also while the server answers requests, and adds its resources to those of
// all versions. A group's versions come together: a webhook with the match policy Equivalent for one must see the
// requests of another, and InstallREST makes that known.
func (i installation) addRoutes(group string,
	resources map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery) error {
	// It has the serializers of responses, and the version of Status and of the options.
	defaults := genericapiserver.NewDefaultAPIGroupInfo(group, i.Scheme, runtime.NewParameterCodec(i.Scheme), i.Codecs)
	container := i.server.Handler.GoRestfulContainer
	prefix := genericapiserver.APIGroupPrefix
	if group == corev1.GroupName {
		prefix = genericapiserver.DefaultLegacyAPIPrefix
	}
	for _, gv := range i.versions(group) {
		version := genericapi.APIGroupVersion{
			Root: prefix, GroupVersion: gv, Storage: i.byVersion[gv],
			OptionsExternalVersion: defaults.OptionsExternalVersion, MetaGroupVersion: defaults.MetaGroupVersion,
			ParameterCodec: defaults.ParameterCodec, Serializer: defaults.NegotiatedSerializer,
			Creater: i.Scheme, Convertor: i.Scheme, ConvertabilityChecker: i.Scheme,
			UnsafeConvertor: runtime.UnsafeObjectConvertor(i.Scheme),
			Defaulter:       i.Scheme, Typer: i.Scheme, Namer: runtime.Namer(meta.NewAccessor()), TypeConverter: i.converter,
			EquivalentResourceRegistry: i.server.EquivalentResourceRegistry, Authorizer: i.server.Authorizer,
			Admit:               i.config.AdmissionControl,
			MinRequestTimeout:   time.Duration(i.config.MinRequestTimeout) * time.Second,
			MaxRequestBodyBytes: i.config.MaxRequestBodyBytes,
		}
		var err error
		if resources[gv], _, err = version.InstallREST(container); err != nil {
			return err
		}
	}
	if group == corev1.GroupName {
		root := discovery.NewLegacyRootAPIHandler(i.config.DiscoveryAddresses, i.server.Serializer, prefix)
		legacy := i.server.AggregatedLegacyDiscoveryGroupManager
		container.Add(aggregated.WrapAggregatedDiscoveryToHandler(root, legacy, legacy).GenerateWebService("/api",
			metav1.APIVersions{}))
		return nil
	}
	service := discovery.NewAPIGroupHandler(i.server.Serializer, i.listed(group)).WebService()
	// Each answer is of an object of its own. The handler has one for all, and encoding sets its kind for a moment:
	// another answer could have none.
	service.Filter(func(q *restful.Request, w *restful.Response, _ *restful.FilterChain) {
		discovery.NewAPIGroupHandler(i.server.Serializer, i.listed(group)).ServeHTTP(w.ResponseWriter, q.Request)
	})
	container.Add(service)
	return nil
}
