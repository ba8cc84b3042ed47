package controlplane

import (
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
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/keepwatch/keepwatch/controlplane/builtin"
	"github.com/keepwatch/keepwatch/controlplane/openapi"
)

// definitions returns the schemas of all Go types.
func definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := crddefinitions.GetOpenAPIDefinitions(ref)
	maps.Copy(all, openapi.GetOpenAPIDefinitions(ref))
	return all
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
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	config.OpenAPIV3Config.Info.Title = "Kubernetes"
	config.SkipOpenAPIInstallation = true
	return nil
}

// installOpenAPI serves /openapi/v2 and /openapi/v3: the resources of the front server, those of the
// extension server, and the custom resources as they change.
func installOpenAPI(front *genericapiserver.GenericAPIServer, extensions *apiserver.CustomResourceDefinitions, config *genericapiserver.Config) error {
	all := restful.NewContainer()
	for _, ws := range front.Handler.GoRestfulContainer.RegisteredWebServices() {
		all.Add(ws)
	}
	for _, ws := range extensions.GenericAPIServer.Handler.GoRestfulContainer.RegisteredWebServices() {
		if strings.HasPrefix(ws.RootPath(), "/apis/"+apiextensions.GroupName) {
			all.Add(ws)
		}
	}
	own := &spec.Swagger{}
	v2 := handler.NewOpenAPIService(own)
	v2.RegisterOpenAPIVersionedService("/openapi/v2", lazyHandlers{front.Handler.NonGoRestfulMux, sync.OnceValue(func() error {
		return buildV2(own, all, config.OpenAPIConfig)
	})})
	v3 := routes.OpenAPI{V3Config: config.OpenAPIV3Config}.InstallV3(all, front.Handler.NonGoRestfulMux)

	crds := extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	v2Controller, v3Controller := crdopenapi.NewController(crds), crdopenapiv3.NewController(crds)
	return front.AddPostStartHook("custom-resource-openapi", func(hook genericapiserver.PostStartHookContext) error {
		go v2Controller.Run(own, v2, hook.Done())
		go v3Controller.Run(v3, hook.Done())
		return nil
	})
}

// buildV2 builds the document of /openapi/v2 without custom resources.
func buildV2(into *spec.Swagger, all *restful.Container, config *common.Config) error {
	built, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(all.RegisteredWebServices()), config)
	if err != nil {
		return err
	}
	*into = *built
	into.Definitions = handler.PruneDefaults(built.Definitions)
	return nil
}

// lazyHandlers registers handlers that call init before their first request: building the document of
// /openapi/v2 takes a fifth of the time of a start without data, and few clients request it. Nothing
// else reads it before.
type lazyHandlers struct {
	common.PathHandler
	init func() error // runs once
}

func (f lazyHandlers) Handle(path string, h http.Handler) {
	f.PathHandler.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if err := f.init(); err != nil {
			responsewriters.InternalError(w, q, err)
			return
		}
		h.ServeHTTP(w, q)
	}))
}
