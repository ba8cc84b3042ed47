package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
)

// accountObjects reads the objects on which tokens of service accounts depend, straight from their storages. set is
// called before the server answers requests.
type accountObjects struct {
	stores map[string]*genericregistry.Store // by resource, of the core group
}

func (o *accountObjects) set(served []builtin.Served) {
	o.stores = map[string]*genericregistry.Store{}
	for _, s := range served {
		if s.Resource.Group == corev1.GroupName {
			o.stores[s.Resource.Resource] = s.Store
		}
	}
}

// get returns the newest state of an object. An error names it, and not what the client requested.
func (o *accountObjects) get(ctx context.Context, resource, namespace, name string) (metav1.Object, error) {
	store := o.stores[resource]
	if store == nil {
		return nil, fmt.Errorf("%s are not served", resource)
	}
	ctx = request.WithRequestInfo(request.WithNamespace(ctx, namespace), &request.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIVersion: "v1", Resource: resource, Namespace: namespace, Name: name,
	})
	found, err := store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return meta.Accessor(found)
}
