package apiserver

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	informers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
)

// remoteVersions has the API versions whose requests the aggregator sends to another API server, by
// their APIServices. An APIService can also name the version of a built-in or a custom resource. It is
// safe for concurrent use.
type remoteVersions struct {
	mu  sync.RWMutex
	all map[schema.GroupVersion]bool
}

// follow sets the aggregator's informer, which has not started. Until it has started, no version is
// remote for the aggregator either.
func (r *remoteVersions) follow(services informers.APIServiceInformer) error {
	r.all = map[schema.GroupVersion]bool{}
	_, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.set,
		UpdateFunc: func(_, o any) { r.set(o) },
		DeleteFunc: r.forget,
	})
	return err
}

func (r *remoteVersions) has(version schema.GroupVersion) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.all[version]
}

func (r *remoteVersions) set(o any) {
	if service, ok := o.(*apiregistrationv1.APIService); ok {
		r.put(service, service.Spec.Service != nil)
	}
}

func (r *remoteVersions) forget(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	if service, ok := o.(*apiregistrationv1.APIService); ok {
		r.put(service, false)
	}
}

func (r *remoteVersions) put(service *apiregistrationv1.APIService, remote bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	version := schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}
	if remote {
		r.all[version] = true
	} else {
		delete(r.all, version)
	}
}
