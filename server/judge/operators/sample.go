package operators

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// DefaultSamples is the folder of samples that kubebuilder makes.
const DefaultSamples = "config/samples"

// samplesOf returns the paths of the samples from which a workload is derived.
func (o Options) samplesOf() []string {
	if o.Workload == "" && len(o.Samples) == 0 {
		if info, err := os.Stat(DefaultSamples); err == nil && info.IsDir() {
			return []string{DefaultSamples}
		}
	}
	return o.Samples
}

// maxChanges bounds the changes of a derived workload: each one is a step of each run.
const maxChanges = 10

// deriveWorkload returns the steps that create the samples, change one field after the other, delete the custom
// resources among them, and create these again. A change is one that the server accepts.
func deriveWorkload(ctx context.Context, base *world, o Options) (steps []step, err error) {
	samples, err := readObjects(o.samplesOf())
	if err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	w, err := base.fork()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	create := step{name: "create the samples", action: apply, objects: samples}
	if _, err := w.perform(ctx, create); err != nil {
		return nil, err
	}
	var custom []*unstructured.Unstructured
	var changes []step
	for _, sample := range samples {
		schema, err := w.schemaOf(ctx, sample)
		if err != nil {
			return nil, err
		}
		if schema == nil {
			continue
		}
		custom = append(custom, sample)
		more, err := w.changesOf(ctx, sample, schema)
		if err != nil {
			return nil, err
		}
		changes = append(changes, more...)
	}
	if len(custom) == 0 {
		return nil, fmt.Errorf("the samples %s have no object that --crds defines", strings.Join(o.samplesOf(), ", "))
	}
	if len(changes) > maxChanges {
		o.log("the samples have %d fields to change: the workload changes the first %d", len(changes), maxChanges)
		changes = changes[:maxChanges]
	}
	return slices.Concat([]step{create}, changes, []step{
		{name: "delete the custom resources", action: remove, objects: custom},
		{name: "create them again", action: apply, objects: custom},
	}), nil
}

// schemaOf returns the schema of an object's definition, or nil if it is no custom resource.
func (w *world) schemaOf(ctx context.Context, o *unstructured.Unstructured) (map[string]any, error) {
	gvr, _, err := w.mapping(o)
	if err != nil || !w.defined[gvr.GroupResource().String()] {
		return nil, err
	}
	definition, err := w.objects.Resource(definitions).Get(ctx, gvr.GroupResource().String(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if version, _ := v.(map[string]any); version["name"] == gvr.Version {
			schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
			return schema, nil
		}
	}
	return nil, nil
}

// changesOf changes the fields of an object, one after the other, and returns the changes that the server has accepted.
func (w *world) changesOf(
	ctx context.Context, sample *unstructured.Unstructured, schema map[string]any,
) ([]step, error) {
	resource, err := w.resource(sample)
	if err != nil {
		return nil, err
	}
	have, err := resource.Get(ctx, sample.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var changes []step
	for _, f := range scalarsOf(have.Object, schema, nil) {
		for _, value := range f.others() {
			change := &unstructured.Unstructured{Object: map[string]any{}}
			change.SetGroupVersionKind(sample.GroupVersionKind())
			change.SetName(sample.GetName())
			change.SetNamespace(sample.GetNamespace())
			if err := unstructured.SetNestedField(change.Object, value, f.path...); err != nil {
				return nil, err
			}
			err := w.performOn(ctx, patch, change.DeepCopy())
			if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			name := fmt.Sprintf("change %s of %s %s", strings.Join(f.path, "."), sample.GetKind(), sample.GetName())
			changes = append(changes, step{name: name, action: patch, objects: []*unstructured.Unstructured{change}})
			break
		}
	}
	return changes, nil
}

// scalar is a field of an object, with its schema.
type scalar struct {
	path   []string
	value  any
	schema map[string]any
}

// scalarsOf returns the fields of an object that its schema knows, in the order of their paths. Items of lists are not
// among them.
func scalarsOf(value any, schema map[string]any, path []string) []scalar {
	fields, isObject := value.(map[string]any)
	if !isObject {
		return []scalar{{path, value, schema}}
	}
	properties, _ := schema["properties"].(map[string]any)
	var all []scalar
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		of, known := properties[name].(map[string]any)
		if known && (len(path) > 0 || name != "metadata" && name != "status" && name != "kind" && name != "apiVersion") {
			all = append(all, scalarsOf(fields[name], of, append(slices.Clone(path), name))...)
		}
	}
	return all
}

// others returns other values for a field, of which the server may refuse some. A text without an enum has none: it may
// be a name, an image, or a quantity.
func (f scalar) others() []any {
	if values, ok := f.schema["enum"].([]any); ok {
		return slices.DeleteFunc(slices.Clone(values), func(v any) bool { return fmt.Sprint(v) == fmt.Sprint(f.value) })
	}
	switch v := f.value.(type) {
	case bool:
		return []any{!v}
	case int64:
		return []any{v + 1, v - 1}
	case float64:
		return []any{v + 1, v - 1}
	default:
		return nil
	}
}

// isKustomization reports whether a file lists others, as in a folder of samples.
func isKustomization(path string) bool {
	switch filepath.Base(path) {
	case "kustomization.yaml", "kustomization.yml":
		return true
	}
	return false
}
