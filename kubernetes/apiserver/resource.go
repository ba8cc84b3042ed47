package apiserver

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch/server/readpath"
)

// reads describes a built-in resource to the read path. Its storage has Kubernetes' internal types;
// complete sets what the registry sets on each read, and may be nil.
func (s servedResource) reads(from openedStorage, complete func(runtime.Object)) readpath.Resource {
	types := typesOf(s.resource.Group)
	convert := func(o runtime.Object) (runtime.Object, error) { return convertTo(o, s.kind.GroupVersion()) }
	if complete != nil {
		convertCompleted := convert
		convert = func(o runtime.Object) (runtime.Object, error) {
			complete(o)
			return convertCompleted(o)
		}
	}
	warning, removed := s.deprecation()
	return readpath.Resource{
		Cache: from.Cache(), Resource: s.resource, Kind: s.kind, Namespaced: s.namespaced,
		Serializer: types.negotiated(s.resource.Group), Convert: convert,
		Table: tableOf(s.resource.GroupResource(), from.newFunc(), complete), Warning: warning, RemovedRelease: removed,
		Predicate: func(label labels.Selector, field fields.Selector) apistorage.SelectionPredicate {
			return apistorage.SelectionPredicate{Label: label, Field: field, GetAttrs: from.attributes}
		},
		FieldLabel: func(label, value string) (string, string, error) {
			return types.scheme.ConvertFieldLabel(s.kind, label, value)
		},
	}
}

// deprecation returns what the API server says in answers with a deprecated kind.
func (s servedResource) deprecation() (warning, removedRelease string) {
	o, err := typesOf(s.resource.Group).scheme.New(s.kind)
	if err != nil {
		return "", ""
	}
	return readpath.Deprecation(o, s.kind)
}
