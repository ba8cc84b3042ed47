package controlplane

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdopenapi "k8s.io/apiextensions-apiserver/pkg/controller/openapi"
	crdopenapiv3 "k8s.io/apiextensions-apiserver/pkg/controller/openapiv3"
	crddefinitions "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/builder"
	builderutil "k8s.io/kube-openapi/pkg/builder3/util"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/controlplane/openapi"
)

// definitions returns the schemas of all Go types.
func definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := crddefinitions.GetOpenAPIDefinitions(ref)
	maps.Copy(all, openapi.GetOpenAPIDefinitions(ref))
	return all
}

// shared are the schemas for OpenAPI v3. All servers of a process name types alike, since their schemes are the same.
var shared struct {
	once sync.Once
	all  map[string]common.OpenAPIDefinition
}

// sharedDefinitions returns the schemas of all Go types for OpenAPI v3, of which only the parts that a builder changes
// are the caller's: a type's own extensions. To share the rest saves a quarter of a server's heap. A builder wraps
// references with siblings, for which it copies what is around them; so here they are wrapped before.
func sharedDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	shared.once.Do(func() {
		shared.all = definitions(ref)
		for name, definition := range shared.all {
			definition.Schema = *builderutil.WrapRefs(&definition.Schema)
			shared.all[name] = definition
		}
	})
	own := maps.Clone(shared.all)
	for name, definition := range own {
		definition.Schema.Extensions = maps.Clone(definition.Schema.Extensions)
		own[name] = definition
	}
	return own
}

// setOpenAPI configures the schemas, which server-side apply needs too. It keeps k8s.io/apiserver from
// installing documents: neither server alone has all schemas.
func setOpenAPI(config *genericapiserver.Config) error {
	scheme, err := builtin.PublicScheme()
	if err != nil {
		return err
	}
	namer := openapinamer.NewDefinitionNamer(scheme, apiserver.Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIConfig.Info.Title = "Kubernetes"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(sharedDefinitions, namer)
	config.OpenAPIV3Config.Info.Title = "Kubernetes"
	config.SkipOpenAPIInstallation = true
	return nil
}

// installOpenAPI serves /openapi/v2 and /openapi/v3: the resources of the front server, those of the
// extension server, and the custom resources as they change.
func installOpenAPI(front *genericapiserver.GenericAPIServer, builtins *builtin.Routes,
	extensions *apiserver.CustomResourceDefinitions, config *genericapiserver.Config) error {
	services := sync.OnceValues(func() ([]*restful.WebService, error) { return allServices(front, builtins, extensions) })
	paths := front.Handler.NonGoRestfulMux
	own := &spec.Swagger{}
	v2 := handler.NewOpenAPIService(own)
	v2.RegisterOpenAPIVersionedService("/openapi/v2", lazyHandlers{paths, sync.OnceValue(func() error {
		all, err := services()
		if err != nil {
			return err
		}
		return buildV2(own, all, config.OpenAPIConfig)
	})})
	v3 := handler3.NewOpenAPIService()
	err := v3.RegisterOpenAPIV3VersionedService("/openapi/v3", lazyHandlers{paths, sync.OnceValue(func() error {
		all, err := services()
		if err != nil {
			return err
		}
		return buildV3(v3, all, *config.OpenAPIV3Config)
	})})
	if err != nil {
		return err
	}

	crds := extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	v2Controller, v3Controller := crdopenapi.NewController(crds), crdopenapiv3.NewController(crds)
	return front.AddPostStartHook("custom-resource-openapi", func(hook genericapiserver.PostStartHookContext) error {
		go v2Controller.Run(own, v2, hook.Done())
		go v3Controller.Run(v3, hook.Done())
		return nil
	})
}

// allServices returns the services of the built-in resources and of definitions.
func allServices(front *genericapiserver.GenericAPIServer, builtins *builtin.Routes,
	extensions *apiserver.CustomResourceDefinitions) ([]*restful.WebService, error) {
	if err := builtins.InstallAll(); err != nil {
		return nil, err
	}
	all := front.Handler.GoRestfulContainer.RegisteredWebServices()
	for _, ws := range extensions.GenericAPIServer.Handler.GoRestfulContainer.RegisteredWebServices() {
		if strings.HasPrefix(ws.RootPath(), "/apis/"+apiextensions.GroupName) {
			all = append(all, ws)
		}
	}
	return all, nil
}

// buildV2 builds the document of /openapi/v2 without custom resources.
func buildV2(into *spec.Swagger, all []*restful.WebService, config *common.Config) error {
	built, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(all), config)
	if err != nil {
		return err
	}
	*into = *built
	into.Definitions = handler.PruneDefaults(built.Definitions)
	return nil
}

// buildV3 adds the documents below /openapi/v3, one a group and version, without custom resources. They
// share parts of their schemas, which building another document changes: all are built before the
// first is encoded.
func buildV3(into *handler3.OpenAPIService, all []*restful.WebService, config common.OpenAPIV3Config) error {
	for _, ws := range all {
		var built *spec3.OpenAPI
		config.PostProcessSpec = func(document *spec3.OpenAPI) (*spec3.OpenAPI, error) {
			built = document
			return document, nil
		}
		one := restful.NewContainer()
		one.Add(ws)
		// It also removes from the document the kinds of other groups.
		routes.OpenAPI{V3Config: &config}.InstallV3(one, mux.NewPathRecorderMux("unused"))
		if built == nil {
			return fmt.Errorf("the OpenAPI document of %s can't be built", ws.RootPath())
		}
		into.UpdateGroupVersion(strings.TrimPrefix(ws.RootPath(), "/"), built)
	}
	return nil
}

// lazyHandlers registers handlers that call init before their first request: building the documents
// takes a third of a start without data, and few clients request them. Nothing else reads them before.
type lazyHandlers struct {
	*mux.PathRecorderMux
	init func() error // runs once
}

func (l lazyHandlers) Handle(path string, h http.Handler) {
	l.PathRecorderMux.Handle(path, l.after(h))
}

func (l lazyHandlers) HandlePrefix(path string, h http.Handler) {
	l.PathRecorderMux.HandlePrefix(path, l.after(h))
}

// after returns a handler that calls init before h.
func (l lazyHandlers) after(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if err := l.init(); err != nil {
			responsewriters.InternalError(w, q, err)
			return
		}
		h.ServeHTTP(w, q)
	})
}
