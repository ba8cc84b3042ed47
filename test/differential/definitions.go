package differential

import (
	"context"
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// define creates the custom resources: widgets with all that a definition can
// have to do with reading, and gadgets with none of it.
func define(ctx context.Context, config *rest.Config) error {
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, definition := range []*apiextensionsv1.CustomResourceDefinition{widgetDefinition(), gadgetDefinition()} {
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition,
			metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// serves waits until a server lists r.
func (s *Side) serves(ctx context.Context, r resource) error {
	return s.answers(ctx, Request{Path: r.collection("")})
}

// answers waits until a server answers a request with 200.
func (s *Side) answers(ctx context.Context, r Request) error {
	done := func(ctx context.Context) (bool, error) { return s.Ask(ctx, r).Status == http.StatusOK, nil }
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, await.Deadline, true, done)
}

func widgetDefinition() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	text, whole, number, yes := schemaOf("string"), schemaOf("integer"), schemaOf("number"), schemaOf("boolean")
	withDefault := text
	withDefault.Default = &apiextensionsv1.JSON{Raw: []byte(`"by default"`)}
	schema := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"color": text, "size": whole, "weight": number, "ready": yes, "note": withDefault,
				"tags": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}},
				"free": {Type: "object", XPreserveUnknownFields: &preserve},
			}},
			"status": {Type: "object", XPreserveUnknownFields: &preserve},
		},
	}}
	version := func(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: stored, Schema: schema,
			Subresources: &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			SelectableFields: []apiextensionsv1.SelectableField{
				{JSONPath: ".spec.color"}, {JSONPath: ".spec.size"}, {JSONPath: ".spec.ready"},
			},
			AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
				{Name: "Color", Type: "string", JSONPath: ".spec.color", Description: "what it looks like"},
				{Name: "Size", Type: "integer", Format: "int32", JSONPath: ".spec.size"},
				{Name: "Weight", Type: "number", JSONPath: ".spec.weight", Priority: 1},
				{Name: "Ready", Type: "boolean", JSONPath: ".spec.ready"},
				{Name: "Tags", Type: "string", JSONPath: ".spec.tags[*]"},
				{Name: "Absent", Type: "string", JSONPath: ".status.phase"},
				{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
			},
		}
	}
	return definition("widgets", "Widget", apiextensionsv1.NamespaceScoped, version("v1", true), version("v1beta1", false))
}

func gadgetDefinition() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return definition("gadgets", "Gadget", apiextensionsv1.ClusterScoped, apiextensionsv1.CustomResourceDefinitionVersion{
		Name: "v1", Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: &preserve,
		}},
	})
}

func definition(plural, kind string, scope apiextensionsv1.ResourceScope,
	versions ...apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: scope, Versions: versions,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: plural[:len(plural)-1], Kind: kind},
		},
	}
}

func schemaOf(name string) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: name}
}
