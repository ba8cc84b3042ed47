package controlplane

import (
	"context"
	"fmt"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// CachedDefinition returns a definition as the server's cache has it.
func (s *Server) CachedDefinition(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	field := reflect.ValueOf(s.readers.custom).Elem().FieldByName("definitions")
	return (*(*listers.CustomResourceDefinitionLister)(field.Addr().UnsafePointer())).Get(name)
}

// DeletableResources returns what a deleted namespace's contents are looked for in, with these custom resources.
func DeletableResources(client kubernetes.Interface,
	custom []schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	c := namespaceCleaner{client: client, custom: func() []schema.GroupVersionResource { return custom }}
	return c.deletable()
}

// CleanNamespace deletes the contents of a deleted namespace as far as possible now.
func CleanNamespace(ctx context.Context, client kubernetes.Interface, objects metadata.Interface, name string) error {
	c := namespaceCleaner{client: client, metadata: objects, custom: func() []schema.GroupVersionResource { return nil }}
	return c.clean(ctx, name)
}

// ViolateInvariant makes the next change of a resource violate an invariant of its watch cache, which
// no request can: history without a list. It returns an error while the resource has no reader: that of a custom
// resource can be later than the first list, which is answered without it.
func (s *Server) ViolateInvariant(resource schema.GroupVersionResource) error {
	reader := s.readers.builtin[resource]
	if reader == nil {
		reader = s.readers.custom.Lookup(resource)
	}
	if reader == nil {
		return fmt.Errorf("%s has no reader", resource)
	}
	field := reflect.ValueOf(reader.Cache()).Elem().FieldByName("store")
	return (*store.Store)(field.UnsafePointer()).Invalidate(context.Background(), keepwatch.GapRewind)
}
