package apiserver

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/readpath"
)

// readers has a reader for each resource that is answered from memory, in each version. It is safe
// for concurrent use.
type readers struct {
	budget     *readpath.Budget
	byResource atomic.Pointer[map[schema.GroupVersionResource]*readpath.Reader] // nil until the servers are built
}

func newReaders(budget int64) *readers {
	r := &readers{budget: readpath.NewBudget(budget)}
	r.budget.Register(registry{})
	return r
}

// chain puts the read path between the API server's checks and its handlers.
func (r *readers) chain(build func(http.Handler, *genericapiserver.Config) http.Handler) func(http.Handler, *genericapiserver.Config) http.Handler {
	return func(handlers http.Handler, config *genericapiserver.Config) http.Handler {
		reads := readpath.NewHandler(handlers, r.lookup, r.budget, time.Duration(config.MinRequestTimeout)*time.Second)
		return readpath.WithWriteDeadline(build(reads, config))
	}
}

func (r *readers) lookup(_ *http.Request, info *request.RequestInfo) *readpath.Reader {
	all := r.byResource.Load()
	if all == nil {
		return nil
	}
	return (*all)[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}]
}

// add makes the readers of all resources that kube-apiserver serves from our storages.
func (r *readers) add(served []servedResource, opened map[schema.GroupResource]openedStorage, complete map[schema.GroupResource]func(runtime.Object)) error {
	all := map[schema.GroupVersionResource]*readpath.Reader{}
	for _, s := range served {
		from, ok := opened[s.resource.GroupResource()]
		if !ok {
			continue
		}
		reader, err := readpath.NewReader(s.reads(from, complete[s.resource.GroupResource()]), r.budget)
		if err != nil {
			return fmt.Errorf("%v: %w", s.resource, err)
		}
		all[s.resource] = reader
	}
	klog.InfoS("Answering reads from memory", "resources", len(all))
	r.byResource.Store(&all)
	return nil
}

// registry is the one that kube-apiserver serves at /metrics.
type registry struct{}

func (registry) MustRegister(all ...metrics.Registerable) { legacyregistry.MustRegister(all...) }
