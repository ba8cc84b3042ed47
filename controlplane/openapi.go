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

// definitions are the schemas of all types that are written in Go.
func definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := crddefinitions.GetOpenAPIDefinitions(ref)
	maps.Copy(all, openapi.GetOpenAPIDefinitions(ref))
	return all
}

// setOpenAPI lets the servers know the schemas, which server-side apply needs, too. The library
// installs no documents: neither server alone knows all of them.
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

// installOpenAPI serves /openapi/v2 and /openapi/v3 of the front server: its own resources, those of
// the extension server, and the custom resources, which come and go.
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
	v2.RegisterOpenAPIVersionedService("/openapi/v2", atFirst{front.Handler.NonGoRestfulMux, sync.OnceValue(func() error {
		return describe(own, all, config.OpenAPIConfig)
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

// describe makes the document of /openapi/v2 without custom resources.
func describe(into *spec.Swagger, all *restful.Container, config *common.Config) error {
	made, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(all.RegisteredWebServices()), config)
	if err != nil {
		return err
	}
	*into = *made
	into.Definitions = handler.PruneDefaults(made.Definitions)
	return nil
}

// atFirst registers handlers that do something before their first request: the document of
// /openapi/v2 takes a fifth of a start without data to make, and few clients ask for it. Nothing
// looks into it before.
type atFirst struct {
	common.PathHandler
	do func() error // once
}

func (f atFirst) Handle(path string, h http.Handler) {
	f.PathHandler.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if err := f.do(); err != nil {
			responsewriters.InternalError(w, q, err)
			return
		}
		h.ServeHTTP(w, q)
	}))
}
