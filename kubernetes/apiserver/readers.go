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

	"github.com/keepwatch/keepwatch/server/customreaders"
	"github.com/keepwatch/keepwatch/server/readpath"
)

// readers finds the reader of a request that is answered from memory. It is safe for concurrent use.
type readers struct {
	budget  *readpath.Budget
	builtin atomic.Pointer[builtinReaders] // nil until the servers are built
	custom  *customreaders.Readers
	remote  remoteVersions
}

// builtinReaders are the readers of built-in resources, in each version, and the API groups of the
// servers' routes: requests for custom resources in these groups get no further.
type builtinReaders struct {
	byResource map[schema.GroupVersionResource]*readpath.Reader
	groups     map[string]bool
}

func newReaders(budget int64) *readers {
	r := &readers{budget: readpath.NewBudget(budget)}
	r.custom = customreaders.New(r.budget, nil)
	return r
}

// chain puts the read path between the API server's checks and its handlers.
func (r *readers) chain(build func(http.Handler, *genericapiserver.Config) http.Handler) func(
	http.Handler, *genericapiserver.Config) http.Handler {
	return func(handlers http.Handler, config *genericapiserver.Config) http.Handler {
		reads := readpath.NewHandler(handlers, r.lookup, r.budget, time.Duration(config.MinRequestTimeout)*time.Second)
		return readpath.WithWriteDeadline(build(reads, config))
	}
}

// lookup returns the reader for a request; nil if kube-apiserver's servers have to answer it.
func (r *readers) lookup(_ *http.Request, info *request.RequestInfo) *readpath.Reader {
	builtin, version := r.builtin.Load(), schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	if builtin == nil || r.remote.has(version) {
		return nil
	}
	name := version.WithResource(info.Resource)
	if reader := builtin.byResource[name]; reader != nil {
		return reader
	}
	if builtin.groups[name.Group] {
		return nil
	}
	return r.custom.Lookup(name)
}

// addBuiltin makes the readers of all resources that servers serve from our storages.
func (r *readers) addBuiltin(servers []*genericapiserver.GenericAPIServer, opened *storages,
	complete map[schema.GroupResource]func(runtime.Object)) error {
	all := builtinReaders{map[schema.GroupVersionResource]*readpath.Reader{}, map[string]bool{}}
	for _, server := range servers {
		for _, group := range groupsOf(server) {
			all.groups[group] = true
		}
		for _, s := range servedBy(server) {
			from, ok := opened.of(s.resource.GroupResource())
			if !ok {
				continue
			}
			reader, err := readpath.NewReader(s.reads(from, complete[s.resource.GroupResource()]), r.budget)
			if err != nil {
				return fmt.Errorf("%v: %w", s.resource, err)
			}
			all.byResource[s.resource] = reader
		}
	}
	klog.InfoS("Answering reads from memory", "resources", len(all.byResource))
	r.builtin.Store(&all)
	return nil
}

// registry is the one that kube-apiserver serves at /metrics.
type registry struct{}

func (registry) MustRegister(all ...metrics.Registerable) { legacyregistry.MustRegister(all...) }
