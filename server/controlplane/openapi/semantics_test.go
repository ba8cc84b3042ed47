package openapi

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Server-side apply, strategic merge patch and kubectl explain depend on these extensions.
func TestListSemantics(t *testing.T) {
	definitions := byModelName()
	pod := corev1.Pod{}.OpenAPIModelName()
	for _, row := range []struct {
		path     []string
		listType any
		listKeys []any
		mergeKey any
	}{
		{[]string{"spec", "containers"}, "map", []any{"name"}, "name"},
		{[]string{"spec", "containers", "ports"}, "map", []any{"containerPort", "protocol"}, "containerPort"},
		{[]string{"spec", "containers", "env"}, "map", []any{"name"}, "name"},
		{[]string{"spec", "containers", "volumeMounts"}, "map", []any{"mountPath"}, "mountPath"},
		{[]string{"spec", "containers", "args"}, "atomic", nil, nil},
		{[]string{"spec", "volumes"}, "map", []any{"name"}, "name"},
		{[]string{"status", "conditions"}, "map", []any{"type"}, "type"},
		{[]string{"metadata", "ownerReferences"}, "map", []any{"uid"}, "uid"},
		{[]string{"metadata", "finalizers"}, "set", nil, nil},
	} {
		schema, err := property(definitions, pod, row.path...)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := schema.Extensions["x-kubernetes-list-type"]; got != row.listType {
			t.Errorf("%v: list type %v, want %v", row.path, got, row.listType)
		}
		if got, _ := schema.Extensions["x-kubernetes-list-map-keys"].([]any); !reflect.DeepEqual(got, row.listKeys) {
			t.Errorf("%v: list keys %v, want %v", row.path, got, row.listKeys)
		}
		if got := schema.Extensions["x-kubernetes-patch-merge-key"]; got != row.mergeKey {
			t.Errorf("%v: merge key %v, want %v", row.path, got, row.mergeKey)
		}
	}
}

func TestScalarFormats(t *testing.T) {
	definitions := byModelName()
	for name, want := range map[string][2]string{
		metav1.Time{}.OpenAPIModelName():          {"string", "date-time"},
		metav1.MicroTime{}.OpenAPIModelName():     {"string", "date-time"},
		resource.Quantity{}.OpenAPIModelName():    {"string", ""},
		intstr.IntOrString{}.OpenAPIModelName():   {"string", "int-or-string"},
		metav1.Duration{}.OpenAPIModelName():      {"string", ""},
		metav1.FieldsV1{}.OpenAPIModelName():      {"object", ""},
		metav1.LabelSelector{}.OpenAPIModelName(): {"object", ""},
	} {
		schema := definitions[name].Schema
		if v2 := v2Schema(definitions[name]); v2 != nil {
			schema = *v2
		}
		if len(schema.Type) != 1 || schema.Type[0] != want[0] || schema.Format != want[1] {
			t.Errorf("%s: type %v format %q, want %v", name, schema.Type, schema.Format, want)
		}
	}
}

func TestRequiredDefaultsAndEnumerations(t *testing.T) {
	definitions := byModelName()
	port := definitions[corev1.ContainerPort{}.OpenAPIModelName()].Schema
	if !slices.Equal(port.Required, []string{"containerPort"}) {
		t.Errorf("required of a container port: %v", port.Required)
	}
	protocol := port.Properties["protocol"]
	if protocol.Default != "TCP" {
		t.Errorf("default protocol %v, want TCP: apply can't merge ports without it", protocol.Default)
	}
	if !slices.Equal(protocol.Enum, []any{"SCTP", "TCP", "UDP"}) {
		t.Errorf("protocols %v", protocol.Enum)
	}
	phase, err := property(definitions, corev1.Pod{}.OpenAPIModelName(), "status", "phase")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(phase.Enum, any("Running")) {
		t.Errorf("pod phases %v", phase.Enum)
	}
}

// v2Schema returns the OpenAPI v2 form of a definition when it differs from the v3 form.
func v2Schema(definition common.OpenAPIDefinition) *spec.Schema {
	schema, ok := definition.Schema.Extensions[common.ExtensionV2Schema].(spec.Schema)
	if !ok {
		return nil
	}
	return &schema
}
