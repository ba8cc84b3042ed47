package openapi

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/emicklei/go-restful/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// allNames returns the names of the models of all kinds in the scheme.
func allNames(t *testing.T, scheme *runtime.Scheme) []string {
	t.Helper()
	names := map[string]bool{}
	for gvk := range scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal {
			continue
		}
		name, err := scheme.ToOpenAPIDefinitionName(gvk)
		if err != nil {
			t.Fatal(err)
		}
		names[name] = true
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	return sorted
}

// v3Schemas builds the schemas of all kinds as the API server does for OpenAPI v3 and for apply.
func v3Schemas(t *testing.T) map[string]*spec.Schema {
	t.Helper()
	scheme := builtInScheme(t)
	config := server.DefaultOpenAPIV3Config(GetOpenAPIDefinitions, apiopenapi.NewDefinitionNamer(scheme))
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(config, allNames(t, scheme)...)
	if err != nil {
		t.Fatal(err)
	}
	return schemas
}

func TestBuildsV2(t *testing.T) {
	scheme := builtInScheme(t)
	names := allNames(t, scheme)
	config := server.DefaultOpenAPIConfig(GetOpenAPIDefinitions, apiopenapi.NewDefinitionNamer(scheme))
	swagger, err := builder.BuildOpenAPIDefinitionsForResources(config, names...)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, ok := swagger.Definitions[name]; !ok {
			t.Errorf("the OpenAPI v2 document has no %s", name)
		}
	}
	gvks := swagger.Definitions[corev1.Pod{}.OpenAPIModelName()].Extensions["x-kubernetes-group-version-kind"]
	encoded, err := json.Marshal(gvks)
	if err != nil || string(encoded) != `[{"group":"","kind":"Pod","version":"v1"}]` {
		t.Errorf("kinds of a pod: %s, %v", encoded, err)
	}
}

// TestBuildsFromRoutes builds both documents the way the API server does for its web services.
func TestBuildsFromRoutes(t *testing.T) {
	service := new(restful.WebService)
	service.Path("/api/v1").Produces("application/json")
	service.Route(service.GET("/pods").Operation("listPods").
		Returns(200, "OK", corev1.PodList{}).Writes(corev1.PodList{}).
		To(func(*restful.Request, *restful.Response) {}))
	containers := restfuladapter.AdaptWebServices([]*restful.WebService{service})
	namer := apiopenapi.NewDefinitionNamer(builtInScheme(t))

	swagger, err := builder.BuildOpenAPISpecFromRoutes(containers, server.DefaultOpenAPIConfig(GetOpenAPIDefinitions,
		namer))
	if err != nil {
		t.Fatal(err)
	}
	document, err := builder3.BuildOpenAPISpecFromRoutes(containers, server.DefaultOpenAPIV3Config(GetOpenAPIDefinitions,
		namer))
	if err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{corev1.PodList{}.OpenAPIModelName(), corev1.Container{}.OpenAPIModelName()} {
		if _, ok := swagger.Definitions[model]; !ok {
			t.Errorf("v2: no %s", model)
		}
		if _, ok := document.Components.Schemas[model]; !ok {
			t.Errorf("v3: no %s", model)
		}
	}
}

// equal compares two values by their JSON.
func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	gotJSON, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(gotJSON) != string(wantJSON) {
		t.Errorf("%s: %s, want %s", what, gotJSON, wantJSON)
	}
}
