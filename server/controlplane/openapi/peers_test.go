package openapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// TestAgreesWithClientGo compares what apply gets from the definitions — types, merge keys, atomic
// fields, defaults — with the schema in client-go, which was made from a real kube-apiserver.
func TestAgreesWithClientGo(t *testing.T) {
	ours, err := schemaconv.ToSchemaFromOpenAPI(v3Schemas(t), false)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]schema.TypeDef{}
	for _, definition := range ours.Types {
		byName[definition.Name] = definition
	}
	pod := &corev1.Pod{}
	pod.SetGroupVersionKind(podKind())
	value, err := applyconfigurations.NewTypeConverter(builtInScheme(t)).ObjectToTyped(pod)
	if err != nil {
		t.Fatal(err)
	}
	options := cmp.Options{
		cmpopts.IgnoreUnexported(schema.Map{}),
		cmpopts.IgnoreFields(schema.Map{}, "Unions"), // apply does not read them
		cmp.FilterValues(func(a, b schema.TypeRef) bool { return untyped(a) && untyped(b) }, cmp.Ignore()),
		cmpopts.SortSlices(func(a, b schema.StructField) bool { return a.Name < b.Name }),
		// One side was read from YAML: equal defaults differ in their Go types.
		cmp.FilterPath(func(path cmp.Path) bool { return path.Last().String() == ".Default" },
			cmp.Comparer(func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) })),
	}
	compared := 0
	for _, want := range value.Schema().Types {
		got, ok := byName[want.Name]
		if !ok || untyped(schema.TypeRef{NamedType: &want.Name}) {
			continue // the embedded server does not offer the kind, or there is nothing to compare
		}
		compared++
		if difference := cmp.Diff(want.Atom, got.Atom, options); difference != "" {
			t.Errorf("%s (-client-go +ours):\n%s", want.Name, difference)
		}
	}
	if compared < 400 {
		t.Errorf("only %d models were compared", compared)
	}
}

// untyped reports whether ref allows any value; there are several notations of that.
func untyped(ref schema.TypeRef) bool {
	if ref.NamedType == nil {
		return ref.Inlined.Scalar != nil && *ref.Inlined.Scalar == "untyped"
	}
	switch *ref.NamedType {
	case runtime.RawExtension{}.OpenAPIModelName(), intstr.IntOrString{}.OpenAPIModelName():
		return true
	}
	return strings.HasPrefix(*ref.NamedType, "__untyped_")
}

// TestAgreesWithAPIExtensions compares the models that the API server for custom resources also
// defines: both sets of definitions are merged into one document.
func TestAgreesWithAPIExtensions(t *testing.T) {
	ours, shared := byModelName(), 0
	for name, theirs := range openapi.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef(name)
	}) {
		mine, ok := ours[name]
		if !ok {
			continue
		}
		shared++
		equal(t, name, mine.Schema, theirs.Schema)
	}
	if shared < 70 {
		t.Errorf("only %d models were compared", shared)
	}
}
