package openapi

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// builtInScheme has every kind of the API groups of the definitions.
func builtInScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, authenticationv1.AddToScheme,
		authorizationv1.AddToScheme, autoscalingv1.AddToScheme, autoscalingv2.AddToScheme,
		batchv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme,
		eventsv1.AddToScheme, networkingv1.AddToScheme, nodev1.AddToScheme, policyv1.AddToScheme,
		rbacv1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme, metav1.AddMetaToScheme,
	)
	if err := builder.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// byModelName returns the definitions with references that are the plain names of models.
func byModelName() map[string]common.OpenAPIDefinition {
	return GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef(name) })
}

func TestEveryKindHasADefinition(t *testing.T) {
	definitions := byModelName()
	scheme := builtInScheme(t)
	for gvk := range scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal {
			continue // never on the wire
		}
		object, err := scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		name := util.GetCanonicalTypeName(object)
		if _, ok := definitions[name]; !ok {
			t.Errorf("%v: no definition %q", gvk, name)
		}
		if known, err := scheme.ToOpenAPIDefinitionName(gvk); err != nil || known != name {
			t.Errorf("%v: the scheme calls the model %q (%v), the builder %q", gvk, known, err, name)
		}
	}
}

func TestTypesOutsideTheSchemeHaveDefinitions(t *testing.T) {
	definitions := byModelName()
	for _, value := range []any{
		version.Info{}, runtime.RawExtension{},
		metav1.APIResourceList{}, metav1.Patch{}, metav1.Table{}, metav1.Time{}, metav1.MicroTime{}, metav1.FieldsV1{},
	} {
		if name := util.GetCanonicalTypeName(value); definitions[name].Schema.Type == nil {
			t.Errorf("no definition %q with a type", name)
		}
	}
}

func TestReferencesResolve(t *testing.T) {
	definitions := byModelName()
	for name, definition := range definitions {
		referenced := references(&definition.Schema)
		for target := range referenced {
			if _, ok := definitions[target]; !ok {
				t.Errorf("%s refers to %q, which has no definition", name, target)
			}
		}
		// The builders follow Dependencies, not the references themselves.
		declared := map[string]bool{}
		for _, dependency := range definition.Dependencies {
			declared[dependency] = true
		}
		if !maps.Equal(referenced, declared) {
			t.Errorf("%s: references %v, dependencies %v", name,
				slices.Sorted(maps.Keys(referenced)), slices.Sorted(maps.Keys(declared)))
		}
	}
}

// references returns the targets of every $ref in s.
func references(s *spec.Schema) map[string]bool {
	found := map[string]bool{}
	var walk func(*spec.Schema)
	walk = func(s *spec.Schema) {
		if ref := s.Ref.String(); ref != "" {
			found[ref] = true
		}
		for _, property := range s.Properties {
			walk(&property)
		}
		if s.Items != nil && s.Items.Schema != nil {
			walk(s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			walk(s.AdditionalProperties.Schema)
		}
		for i := range s.AllOf {
			walk(&s.AllOf[i])
		}
	}
	walk(s)
	return found
}

// TestDefinitionsMatchTheGoTypes finds definitions that are older or newer than the API types the
// module is built with.
func TestDefinitionsMatchTheGoTypes(t *testing.T) {
	definitions := byModelName()
	checked := map[reflect.Type]bool{}
	var check func(reflect.Type)
	check = func(goType reflect.Type) {
		switch goType.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			check(goType.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if checked[goType] || !strings.HasPrefix(goType.PkgPath(), "k8s.io/") {
			return
		}
		checked[goType] = true
		name := util.GetCanonicalTypeName(reflect.Zero(goType).Interface())
		definition, ok := definitions[name]
		if !ok {
			t.Errorf("%v: no definition %q", goType, name)
			return
		}
		if !slices.Equal(definition.Schema.Type, spec.StringOrArray{"object"}) || definition.Schema.Properties == nil {
			return // encodes itself: times, quantities, raw JSON
		}
		fields := jsonFields(goType)
		want, got := slices.Sorted(maps.Keys(fields)), slices.Sorted(maps.Keys(definition.Schema.Properties))
		if !slices.Equal(want, got) {
			t.Errorf("%s has the properties %v, but %v has the fields %v: run go generate", name, got, goType, want)
		}
		for _, field := range fields {
			check(field)
		}
	}
	for gvk, goType := range builtInScheme(t).AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal {
			check(goType)
		}
	}
	if len(checked) < 500 {
		t.Errorf("only %d types were reached", len(checked))
	}
}

// jsonFields returns the fields of a struct as encoding/json names them.
func jsonFields(goType reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range goType.NumField() {
		field := goType.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case name == "" && (strings.Contains(options, "inline") || field.Anonymous):
			maps.Copy(fields, jsonFields(field.Type))
		case name != "":
			fields[name] = field.Type
		}
	}
	return fields
}

// property finds a property by model name and path, through references and the items of lists.
func property(definitions map[string]common.OpenAPIDefinition, model string, path ...string) (spec.Schema, error) {
	schema := definitions[model].Schema
	for _, step := range path {
		if ref := target(schema); ref != "" {
			schema = definitions[ref].Schema
		}
		next, ok := schema.Properties[step]
		if !ok {
			return spec.Schema{}, fmt.Errorf("%s %v: no property %q", model, path, step)
		}
		schema = next
	}
	return schema, nil
}

// target returns the model that a property, or each of its items, refers to.
func target(s spec.Schema) string {
	if s.Items != nil && s.Items.Schema != nil {
		s = *s.Items.Schema
	}
	return s.Ref.String()
}
