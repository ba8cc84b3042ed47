package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/controlplane/columns"
	"github.com/keepwatch/keepwatch/server/customreaders"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/storage"
)

// ownGroups are those of the servers themselves, which answer all requests below their paths: a custom resource in one
// of them is not reachable, as in kube-apiserver.
var ownGroups = sets.New(append(builtin.Groups(), definitionResource.Group)...)

// readers has the read path's reader of each resource. Readers of built-in resources are added before
// the server runs; those of custom resources are added and removed with their storages.
type readers struct {
	budget    *readpath.Budget
	builtin   map[schema.GroupVersionResource]*readpath.Reader
	custom    *customreaders.Readers
	encodings *recentEncodings
}

func newReaders(budget int64) *readers {
	r := &readers{
		budget:    readpath.NewBudget(budget),
		builtin:   map[schema.GroupVersionResource]*readpath.Reader{},
		encodings: newRecentEncodings(),
	}
	r.custom = customreaders.New(r.budget, r.encodings)
	return r
}

// chain puts the read path between the filters of k8s.io/apiserver and its handlers.
func (r *readers) chain(build handlerChain) handlerChain {
	return func(handlers http.Handler, config *genericapiserver.Config) http.Handler {
		reads := readpath.NewHandler(handlers, r.lookup, r.budget, time.Duration(config.MinRequestTimeout)*time.Second)
		return readpath.WithWriteDeadline(build(reads, config))
	}
}

// addBuiltin adds readers of the built-in resources, in their stored versions.
func (r *readers) addBuiltin(kinds *builtin.Registry, served []builtin.Served) error {
	for _, k := range served {
		stored, ok := k.Store.Storage.Storage.(*storage.Storage)
		if !ok {
			continue
		}
		kind := k.Resource.GroupVersion().WithKind(k.Kind)
		warning, removed := readpath.Deprecation(k.Store.New(), kind)
		reader, err := readpath.NewReader(readpath.Resource{
			Cache: stored.Cache(), Resource: k.Resource, Kind: kind, Namespaced: k.Namespaced,
			Serializer: kinds.Codecs, Predicate: k.Store.PredicateFunc, Table: columns.Of(k.Resource.GroupResource()),
			Warning: warning, RemovedRelease: removed, ListEncodingUsed: r.encodings.Recorder(k.Resource),
			FieldLabel: func(label, value string) (string, string, error) {
				return kinds.Scheme.ConvertFieldLabel(kind, label, value)
			},
		}, r.budget)
		if err != nil {
			return err
		}
		r.builtin[k.Resource] = reader
		r.encodings.AddReader(k.Resource, reader)
	}
	return nil
}

// ready returns an error until the caches of all built-in resources are ready.
func (r *readers) ready() error {
	for name, reader := range r.builtin {
		if err := reader.Cache().ReadinessCheck(); err != nil {
			return fmt.Errorf("%s: %w", name.GroupResource(), err)
		}
	}
	return nil
}

// waitWarmed waits until the caches of all built-in resources have decoded the objects that they read
// at the start.
func (r *readers) waitWarmed(ctx context.Context) error {
	for _, reader := range r.builtin {
		select {
		case <-reader.Cache().Warmed():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// lookup returns the reader for a request; nil if the handlers of k8s.io/apiserver have to answer it.
func (r *readers) lookup(_ *http.Request, info *request.RequestInfo) *readpath.Reader {
	name := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	if reader := r.builtin[name]; reader != nil {
		return reader
	}
	if ownGroups.Has(name.Group) {
		return nil
	}
	return r.custom.Lookup(name)
}
