package controlplane

import (
	"maps"
	"strings"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdopenapi "k8s.io/apiextensions-apiserver/pkg/controller/openapi"
	crdopenapiv3 "k8s.io/apiextensions-apiserver/pkg/controller/openapiv3"
	crddefinitions "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/common"

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
	v2, spec := routes.OpenAPI{Config: config.OpenAPIConfig}.InstallV2(all, front.Handler.NonGoRestfulMux)
	v3 := routes.OpenAPI{V3Config: config.OpenAPIV3Config}.InstallV3(all, front.Handler.NonGoRestfulMux)

	crds := extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	v2Controller, v3Controller := crdopenapi.NewController(crds), crdopenapiv3.NewController(crds)
	return front.AddPostStartHook("custom-resource-openapi", func(hook genericapiserver.PostStartHookContext) error {
		go v2Controller.Run(spec, v2, hook.Done())
		go v3Controller.Run(v3, hook.Done())
		return nil
	})
}
