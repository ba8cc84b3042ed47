package apiserver

import (
	"net"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	api "k8s.io/kubernetes/pkg/apis/core"
	claims "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	services "k8s.io/kubernetes/pkg/registry/core/service/storage"
	netutils "k8s.io/utils/net"
)

// defaultsOnRead returns the functions by which Kubernetes' registries complete objects that an older
// version has stored, by resource. The registries are opened on no storage, for these functions only.
func defaultsOnRead(serviceIPs net.IPNet) (map[schema.GroupResource]func(runtime.Object), error) {
	nowhere := generic.RESTOptions{
		StorageConfig:  &storagebackend.ConfigForResource{},
		ResourcePrefix: "nowhere",
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error),
			func() runtime.Object, func() runtime.Object,
			apistorage.AttrFunc, apistorage.IndexerFuncs, *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
			return nil, func() {}, nil
		},
	}
	family := api.IPv4Protocol
	if netutils.IsIPv6CIDR(&serviceIPs) {
		family = api.IPv6Protocol
	}
	service, _, _, err := services.NewREST(nowhere, family, nil, nil, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	claim, _, err := claims.NewREST(nowhere)
	if err != nil {
		return nil, err
	}
	return map[schema.GroupResource]func(runtime.Object){
		{Resource: "services"}:               service.Decorator,
		{Resource: "persistentvolumeclaims"}: claim.Decorator,
	}, nil
}
