package apiserver

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

const customGroup = "reads.example.com"

var (
	definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// TestCustomResources changes the schema and the columns of a definition. The read path answers by the newest
// definition, and as kube-apiserver does.
func TestCustomResources(t *testing.T) {
	s := startBoth(t)
	const all, one = "/apis/" + customGroup + "/v1/widgets", "/apis/" + customGroup + "/v1/namespaces/default/widgets/a"
	s.define(widgets())
	s.shows(all, asJSON, `"WidgetList"`)
	for _, at := range []string{"default/a", "default/b", "kube-system/c"} {
		s.createWidget(at)
	}
	s.shows(one, asJSON, `"size":3`)
	s.answersFromMemory(one)
	s.sameReads()

	s.redefine(func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["color"] =
			apiextensionsv1.JSONSchemaProps{Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"blue"`)}}
	})
	s.shows(one, asJSON, "blue")
	s.answersFromMemory(one)
	s.sameReads()

	s.redefine(func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Color", Type: "string", JSONPath: ".spec.color"}, {Name: "Age", Type: "date",
				JSONPath: ".metadata.creationTimestamp"},
		}
	})
	s.shows(all, asTable, `"Color"`)
	s.sameReads()
}

// TestRemoteVersions gives built-in and custom resources to another API server, by APIServices.
func TestRemoteVersions(t *testing.T) {
	notShort(t)
	s := startBoth(t)
	const custom, builtin = "/apis/" + customGroup + "/v1/widgets", "/apis/scheduling.k8s.io/v1/priorityclasses"
	s.define(widgets())
	for version, path := range map[string]string{"v1." + customGroup: custom, "v1.scheduling.k8s.io": builtin} {
		s.shows(path, asJSON, `List"`)
		s.answersFromMemory(path)
		// Without its label, the server does not restore the APIService.
		s.patch(apiServices, version, `{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":null}},
			"spec":{"service":{"namespace":"default","name":"none","port":443},"insecureSkipTLSVerify":true}}`)
		s.shows(path, asJSON, "503")
		s.same(path, asJSON, "")
		s.patch(apiServices, version, `{"spec":{"service":null,"insecureSkipTLSVerify":null}}`)
		s.shows(path, asJSON, `List"`)
		s.answersFromMemory(path)
	}
}

// widgets is a definition with one version, v1.
func widgets() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(),
			Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: definitionName},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: customGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget",
				ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.size"}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}},
					},
				}},
			}},
		},
	}
}

func (s *both) define(definition *apiextensionsv1.CustomResourceDefinition) {
	s.t.Helper()
	if err := s.tryDefine(definition); err != nil {
		s.t.Fatal(err)
	}
}

func (s *both) tryDefine(definition *apiextensionsv1.CustomResourceDefinition) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	if err == nil {
		_, err = s.client.Resource(definitions).Create(s.t.Context(), &unstructured.Unstructured{Object: content},
			metav1.CreateOptions{})
	}
	return err
}

func (s *both) redefine(change func(*apiextensionsv1.CustomResourceDefinitionSpec)) {
	s.t.Helper()
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := s.client.Resource(definitions).Get(s.t.Context(), definitionName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &definition); err != nil {
			return err
		}
		change(&definition.Spec)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&definition)
		if err != nil {
			return err
		}
		_, err = s.client.Resource(definitions).Update(s.t.Context(), &unstructured.Unstructured{Object: content},
			metav1.UpdateOptions{})
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
}

// createWidget creates a widget at a namespace, which may be empty, and a name.
func (s *both) createWidget(at string) *unstructured.Unstructured {
	s.t.Helper()
	namespace, name, _ := strings.Cut(at, "/")
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": customGroup + "/v1", "kind": "Widget",
		"spec": map[string]any{"size": int64(3)}}}
	o.SetName(name)
	o.SetLabels(map[string]string{"name": name})
	created, err := s.client.Resource(widgetsIn("v1")).Namespace(namespace).Create(s.t.Context(), o,
		metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return created
}

func (s *both) patch(resource schema.GroupVersionResource, name, patch string) {
	s.t.Helper()
	if _, err := s.client.Resource(resource).Patch(s.t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// sameReads compares the reads of widgets.
func (s *both) sameReads() {
	s.t.Helper()
	s.sameReadsOf("v1")
}

// sameReadsOf compares the reads of widgets in a version.
func (s *both) sameReadsOf(version string) {
	s.t.Helper()
	root := "/apis/" + customGroup + "/" + version + "/"
	for _, as := range []string{asJSON, asMetadata, asMetadataProtobuf, asTable} {
		for _, path := range []string{"widgets", "namespaces/default/widgets", "widgets?labelSelector=name%3Da",
			"widgets?fieldSelector=metadata.name%3Da",
			"widgets?fieldSelector=spec.size%3D3", "widgets?limit=1"} {
			if as == asMetadataProtobuf && strings.Contains(path, "limit") {
				continue // the tokens differ
			}
			s.same(root+path, as, "")
		}
		s.same(root+"namespaces/default/widgets/a", strings.Replace(as, "MetadataList", "Metadata", 1), "")
	}
	const streaming = "widgets?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	s.same(root+streaming, asJSON, "gzip")
}
