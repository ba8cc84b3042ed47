package builtin

import (
	"context"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/services"
)

// strategy has the rules of one kind for creates, updates and deletes of whole objects. It checks
// names, metadata, the values of some kinds (validate.go) and, in updates, immutable fields.
type strategy struct {
	*kind
	runtime.ObjectTyper
	names.NameGenerator
}

func (s strategy) NamespaceScoped() bool                                     { return s.namespaced }
func (s strategy) AllowCreateOnUpdate(context.Context) bool                  { return s.putCreates }
func (s strategy) AllowUnconditionalUpdate(context.Context) bool             { return !s.putNeedsVersion }
func (s strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (s strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// Canonicalize sets the label of a namespace whose name was generated, and completes a Service as kube-apiserver does
// when it answers.
func (s strategy) Canonicalize(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Namespace:
		defaultNamespace(o)
	case *corev1.Service:
		services.Complete(o)
	}
}

// PrepareForCreate clears the fields that only the server or /status may set.
func (s strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	if s.status == ownStatus || s.status == strictStatus {
		part(obj, "Status").SetZero()
	}
	accessor(obj).SetGeneration(0)
	if s.counts != countNothing {
		accessor(obj).SetGeneration(1)
	}
	if s.prepare != nil {
		s.prepare(obj)
	}
}

// PrepareForUpdate keeps the status and increments the generation.
func (s strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if s.status != noStatus {
		part(obj, "Status").Set(part(old, "Status"))
	}
	if s.prepareUpdate != nil {
		s.prepareUpdate(obj, old)
	}
	accessor(obj).SetGeneration(accessor(old).GetGeneration())
	if s.changed(obj, old) {
		accessor(obj).SetGeneration(accessor(old).GetGeneration() + 1)
	}
}

// changed reports whether an update increments metadata.generation.
func (s strategy) changed(obj, old runtime.Object) bool {
	same := equality.Semantic.DeepEqual
	sameSpec := func() bool { return same(part(obj, "Spec").Interface(), part(old, "Spec").Interface()) }
	switch s.counts {
	case countSpec:
		return !sameSpec()
	case countSpecAndAnnotations:
		return !sameSpec() || !same(accessor(obj).GetAnnotations(), accessor(old).GetAnnotations())
	case countContent:
		return !same(withoutMeta(obj), withoutMeta(old))
	case countContentAndLabels:
		return !same(withoutMeta(obj), withoutMeta(old)) || !same(accessor(obj).GetLabels(), accessor(old).GetLabels())
	default:
		return false
	}
}

// withoutMeta returns a shallow copy of obj without its type and object metadata.
func withoutMeta(obj runtime.Object) any {
	bare := reflect.New(reflect.TypeOf(obj).Elem()).Elem()
	bare.Set(reflect.ValueOf(obj).Elem())
	bare.FieldByName("TypeMeta").SetZero()
	bare.FieldByName("ObjectMeta").SetZero()
	return bare.Interface()
}

// Validate checks the metadata by the kind's naming rule, and the values.
func (s strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	name := s.name
	if name == nil {
		name = validation.NameIsDNSSubdomain
	}
	at := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(accessor(obj), s.namespaced, name, at)
	for i, finalizer := range accessor(obj).GetFinalizers() {
		if !slices.Contains(plainFinalizers, finalizer) && !strings.Contains(finalizer, "/") {
			errs = append(errs, field.Invalid(at.Child("finalizers").Index(i), finalizer,
				"name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return append(errs, validateValues(obj)...)
}

// pathSegment accepts every name that a URL path segment can contain: the names of RBAC kinds.
func pathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

// plainFinalizers are those without a domain in their name.
var plainFinalizers = []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents,
	metav1.FinalizerDeleteDependents}

// ValidateUpdate checks the kind's immutable fields and the values; the library checks the metadata.
func (s strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return append(s.immutable(obj, old), validateChangedValues(obj, old)...)
}

// GetResetFields returns status, which managers of the main resource do not own.
func (s strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if s.status == noStatus {
		return nil
	}
	return s.reset("status")
}

// reset returns fields that a manager does not own, for every served version of the kind.
func (k *kind) reset(fields ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	var paths []fieldpath.Path
	for _, name := range fields {
		paths = append(paths, fieldpath.MakePathOrDie(name))
	}
	return k.resetPaths(paths...)
}

// resetPaths is reset for fields at any depth.
func (k *kind) resetPaths(paths ...fieldpath.Path) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet(paths...)
	byVersion := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, gv := range k.served() {
		byVersion[fieldpath.APIVersion(gv.String())] = set
	}
	return byVersion
}

// accessor returns the object's metadata, which every built-in type has.
func accessor(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err) // a row of the table names a type that is no API object
	}
	return m
}
