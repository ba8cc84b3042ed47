package schemas

import (
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdopenapi "k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	crddefinitions "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/keepwatch/keepwatch/server/controlplane/openapi"
	"github.com/keepwatch/keepwatch/source/history"
)

// Path is where a server has the documents: an index, and below it a document for each group and version.
const Path = "/openapi/v3"

// Index returns where the documents are. Clients put the address of the moment before a path that lacks it.
func Index(types []history.Type) *handler3.OpenAPIV3Discovery {
	index := &handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for _, t := range types {
		root := rootOf(t)
		index.Paths[root] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: path.Join(Path, root)}
	}
	return index
}

// rootOf returns the path of the types of a group and version: api/v1, or apis/GROUP/VERSION.
func rootOf(t history.Type) string {
	if t.Group() == "" {
		return path.Join("api", t.Version)
	}
	return path.Join("apis", t.Group(), t.Version)
}

// InVersion returns the types of a group and version: api/v1, or apis/GROUP/VERSION.
func InVersion(types []history.Type, root string) (all []history.Type) {
	for _, t := range types {
		if rootOf(t) == root {
			all = append(all, t)
		}
	}
	return all
}

// sharedSchemas is locked while a document of custom resources is built and encoded: the builder changes schemas that
// all documents share.
var sharedSchemas sync.Mutex

// Document returns the document of types of one group and version, in JSON. The scheme knows the built-in kinds, and
// custom are the definitions of the other types. It has what can be read. A type whose definition has no schema that
// can be built is left out.
func Document(scheme *runtime.Scheme, types []history.Type,
	custom []*apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	document := &spec3.OpenAPI{
		Version: "3.0.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: "unversioned"}},
		Paths: &spec3.Paths{Paths: map[string]*spec3.Path{}}, Components: &spec3.Components{},
	}
	var names []string
	for _, of := range types {
		kind := schema.GroupVersionKind{Group: of.Group(), Version: of.Version, Kind: of.Kind}
		if !scheme.Recognizes(kind) {
			continue
		}
		o, err := scheme.New(kind)
		if err != nil {
			return nil, err
		}
		names = append(names, util.GetCanonicalTypeName(o))
		maps.Copy(document.Paths.Paths, reads(of, kind))
	}
	var err error
	document.Components.Schemas, err = builder3.BuildOpenAPIDefinitionsForResources(&common.OpenAPIV3Config{
		GetDefinitionName: openapinamer.NewDefinitionNamer(scheme).GetDefinitionName,
		GetDefinitions: func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
			all := crddefinitions.GetOpenAPIDefinitions(ref)
			maps.Copy(all, openapi.GetOpenAPIDefinitions(ref))
			return all
		},
	}, names...)
	if err != nil {
		return nil, err
	}
	if len(custom) > 0 {
		sharedSchemas.Lock()
		defer sharedSchemas.Unlock()
	}
	for _, definition := range custom {
		built, err := crdopenapi.BuildOpenAPIV3(definition, types[0].Version, crdopenapi.Options{AllowNonStructural: true})
		if err != nil {
			klog.ErrorS(err, "A type has no schema", "definition", definition.Name)
			continue
		}
		maps.Copy(document.Components.Schemas, built.Components.Schemas)
		for name, of := range built.Paths.Paths {
			of.Post, of.Put, of.Patch, of.Delete = nil, nil, nil, nil
			document.Paths.Paths[name] = of
		}
	}
	return json.Marshal(document)
}

// reads returns the paths of a type. Clients find its kind in them.
func reads(of history.Type, kind schema.GroupVersionKind) map[string]*spec3.Path {
	read := func(action string) *spec3.Path {
		return &spec3.Path{PathProps: spec3.PathProps{Get: &spec3.Operation{
			OperationProps: spec3.OperationProps{Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{
				StatusCodeResponses: map[int]*spec3.Response{http.StatusOK: {ResponseProps: spec3.ResponseProps{
					Description: "OK"}}},
			}}},
			VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{
				"x-kubernetes-action":             action,
				"x-kubernetes-group-version-kind": metav1.GroupVersionKind(kind),
			}},
		}}}
	}
	root := "/" + rootOf(of)
	all := map[string]*spec3.Path{path.Join(root, of.Name()): read("list")}
	if of.Namespaced {
		root = path.Join(root, "namespaces/{namespace}")
		all[path.Join(root, of.Name())] = read("list")
	}
	all[path.Join(root, of.Name(), "{name}")] = read("get")
	return all
}
