package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// completed are the resources whose registries set fields on each read (see defaultsOnRead): what is
// served is not what is stored. Their watches do not share objects, which a registry could not complete.
var completed = map[schema.GroupResource]bool{
	{Resource: "services"}:               true,
	{Resource: "persistentvolumeclaims"}: true,
}

// servedVersion returns the version in which a watch cache stores the objects of a built-in resource: the
// one that etcd has. Most clients request it.
func servedVersion(config *storagebackend.ConfigForResource, newFunc func() runtime.Object) *watchcache.Version {
	if config.EncodeVersioner == nil || completed[config.GroupResource] {
		return nil
	}
	inMemory, _, err := legacyscheme.Scheme.ObjectKinds(newFunc())
	if err != nil { // definitions and APIServices are few
		return nil
	}
	kind, ok := config.EncodeVersioner.KindForGroupVersionKinds(inMemory)
	internal := kind.GroupKind().WithVersion(runtime.APIVersionInternal)
	if !ok || !legacyscheme.Scheme.Recognizes(kind) || !slices.Contains(inMemory, internal) {
		return nil
	}
	return versionOfKind(kind, internal.GroupVersion())
}

// versionOfKind returns a version of a kind in the scheme.
func versionOfKind(kind schema.GroupVersionKind, internal schema.GroupVersion) *watchcache.Version {
	return &watchcache.Version{
		GroupVersion: kind.GroupVersion(),
		New: func() runtime.Object {
			o, _ := legacyscheme.Scheme.New(kind) // the scheme has it
			return o
		},
		To:   func(o runtime.Object) (runtime.Object, error) { return convertTo(o, kind.GroupVersion()) },
		From: func(o runtime.Object) (runtime.Object, error) { return convertTo(o, internal) },
	}
}

// convertTo returns an object in another version, without apiVersion and kind. The two share memory.
func convertTo(o runtime.Object, version schema.GroupVersion) (runtime.Object, error) {
	converted, err := typesOf(version.Group).scheme.UnsafeConvertToVersion(o, version)
	if err != nil {
		return nil, err
	}
	converted.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return converted, nil
}
