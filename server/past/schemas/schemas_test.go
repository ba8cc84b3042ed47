package schemas_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/past/schemas"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

func typeOf(resource, version, kind string) history.Type {
	return history.Type{Resource: resource, Type: sink.Type{Version: version, Kind: kind, Namespaced: true}}
}

// TestDocument builds documents at the same time. They have what can be read of the types of one version.
func TestDocument(t *testing.T) {
	scheme, err := builtin.PublicScheme()
	if err != nil {
		t.Fatal(err)
	}
	types := []history.Type{
		typeOf("pods", "v1", "Pod"), typeOf("deployments.apps", "v1", "Deployment"),
		typeOf("widgets.example.com", "v1", "Widget"), typeOf("gadgets.example.com", "v1", "Gadget"),
	}
	size := apiextensionsv1.JSONSchemaProps{Type: "integer", Description: "How large it is."}
	widgets := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": size}}}}},
		},
	}
	gadgets := &apiextensionsv1.CustomResourceDefinition{ // without a version: it has no schema, and hinders none
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.com"},
	}
	index, err := json.Marshal(schemas.Index(types))
	if err != nil ||
		!bytes.Contains(index, []byte(`"apis/example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/example.com/v1"}`)) {
		t.Errorf("%s, %v", index, err)
	}
	var building sync.WaitGroup
	for range 2 {
		for root, want := range map[string]string{
			"api/v1":              "io.k8s.api.core.v1.Pod",
			"apis/apps/v1":        "io.k8s.api.apps.v1.Deployment",
			"apis/example.com/v1": "com.example.v1.Widget",
			"apis/none/v1":        "",
		} {
			building.Go(func() {
				of := schemas.InVersion(types, root)
				if len(of) == 0 != (want == "") {
					t.Errorf("%s has %v", root, of)
				}
				if want == "" {
					return
				}
				var custom []*apiextensionsv1.CustomResourceDefinition
				if strings.Contains(root, "example.com") {
					custom = append(custom, gadgets, widgets)
				}
				text, err := schemas.Document(scheme, of, custom)
				var document struct {
					Paths      map[string]map[string]json.RawMessage
					Components struct {
						Schemas map[string]struct{ Properties map[string]any }
					}
				}
				if err == nil {
					err = json.Unmarshal(text, &document)
				}
				if err != nil || document.Components.Schemas[want].Properties["metadata"] == nil {
					t.Errorf("%s: %v, without %s", root, err, want)
				}
				for path, of := range document.Paths {
					if verbs := slices.Collect(maps.Keys(of)); of["get"] == nil || slices.Contains(verbs, "post") ||
						slices.Contains(verbs, "patch") {
						t.Errorf("%s has %q", path, verbs)
					}
				}
			})
		}
	}
	building.Wait()
}
