package controlplane

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
)

// stored reads and writes the objects of a cluster-scoped built-in resource at its storage, without requests: those for
// the server's own objects would add a third to the CPU of a start. Admission does not see these writes, and the
// objects have no managed fields.
type stored[T interface {
	metav1.Object
	runtime.Object
}] struct{ store *genericregistry.Store }

// storesOf returns the storages of the built-in resources.
func storesOf(served []builtin.Served) map[schema.GroupResource]*genericregistry.Store {
	stores := map[schema.GroupResource]*genericregistry.Store{}
	for _, kind := range served {
		stores[kind.Resource.GroupResource()] = kind.Store
	}
	return stores
}

// List returns copies.
func (s stored[T]) List(ctx context.Context) ([]T, error) {
	list, err := s.store.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []T
	err = meta.EachListItem(list, func(o runtime.Object) error {
		all = append(all, o.DeepCopyObject().(T))
		return nil
	})
	return all, err
}

// Get returns a copy.
func (s stored[T]) Get(ctx context.Context, name string) (T, error) {
	o, err := s.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		var none T
		return none, err
	}
	return o.DeepCopyObject().(T), nil
}

// Create stores a copy of an object.
func (s stored[T]) Create(ctx context.Context, o T) error {
	_, err := s.store.Create(clusterScoped(ctx), o.DeepCopyObject(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	return err
}

// Update fails if the object was changed after it was read.
func (s stored[T]) Update(ctx context.Context, o T) error {
	_, _, err := s.store.Update(clusterScoped(ctx), o.GetName(), rest.DefaultUpdatedObjectInfo(o),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return err
}

// Delete fails if the object with this name has another UID.
func (s stored[T]) Delete(ctx context.Context, name string, uid types.UID) error {
	options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))}
	_, _, err := s.store.Delete(clusterScoped(ctx), name, rest.ValidateAllObjectFunc, options)
	return err
}

// clusterScoped returns the context of a request without a namespace.
func clusterScoped(ctx context.Context) context.Context {
	return request.WithNamespace(ctx, metav1.NamespaceNone)
}
