package proxy

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/readpath"
	"github.com/keepwatch/keepwatch/store"
	"github.com/keepwatch/keepwatch/watchcache"
)

const (
	// maxCaches bounds the resources that are followed, and those whose caches have failed.
	maxCaches = 1000
	// failedFor is how long a resource is left to the server after its cache has failed.
	failedFor = 30 * time.Second
)

// caches follows resources from their first use on. It is safe for concurrent use.
type caches struct {
	server    *rest.Config
	describer describer
	budget    *readpath.Budget
	metrics   *watchcache.Metrics
	store     store.Options

	mu      sync.Mutex
	running context.Context // of run; nil before
	active  sync.WaitGroup
	all     map[schema.GroupVersionResource]*entry
}

// entry is a resource that is followed, or has failed.
type entry struct {
	*follower           // nil until the server has described the resource
	failed    time.Time // zero while it is followed
}

// follower is a resource that is followed.
type follower struct {
	reader *readpath.Reader
	source *source
}

func newCaches(server *rest.Config, budget *readpath.Budget, metrics *watchcache.Metrics, history store.Options) (*caches, error) {
	transport, err := rest.TransportFor(server)
	if err != nil {
		return nil, err
	}
	location, _, err := rest.DefaultServerUrlFor(server)
	if err != nil {
		return nil, err
	}
	return &caches{
		server: server, describer: describer{&http.Client{Transport: transport}, location}, budget: budget, metrics: metrics, store: history,
		all: map[schema.GroupVersionResource]*entry{},
	}, nil
}

// run lets resources be followed until ctx ends, and waits until none is.
func (c *caches) run(ctx context.Context) {
	c.mu.Lock()
	c.running = ctx
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.running = nil
	c.mu.Unlock()
	c.active.Wait()
}

// ready returns the follower of a resource that has caught up with the server, or nil.
func (c *caches) ready(of schema.GroupVersionResource) *follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[of]
	if e == nil || e.follower == nil || e.reader.Cache().ReadinessCheck() != nil {
		return nil
	}
	return e.follower
}

// follow begins to follow a resource, unless it is followed or has failed a short time ago.
func (c *caches) follow(of schema.GroupVersionResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[of]
	if c.running == nil || e != nil && (e.failed.IsZero() || time.Since(e.failed) < failedFor) || e == nil && !c.hasRoom() {
		return
	}
	e = &entry{}
	c.all[of] = e
	ctx := c.running
	c.active.Go(func() {
		err := c.serve(ctx, of, e)
		if ctx.Err() == nil {
			klog.InfoS("A resource is left to the server", "resource", of, "for", failedFor, "reason", err)
		}
		c.fail(e)
	})
}

// hasRoom reports whether another resource can be followed, and drops failed ones for that. c.mu is locked.
func (c *caches) hasRoom() bool {
	if len(c.all) < maxCaches {
		return true
	}
	for of, e := range c.all {
		if !e.failed.IsZero() {
			delete(c.all, of)
		}
	}
	return len(c.all) < maxCaches
}

// fail leaves a resource to the server.
func (c *caches) fail(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.follower, e.failed = nil, time.Now()
}

// serve follows a resource until ctx ends or the server no longer has it.
func (c *caches) serve(ctx context.Context, of schema.GroupVersionResource, e *entry) error {
	about, err := c.describer.describe(ctx, of)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f, err := c.newFollower(about, cancel)
	if err != nil {
		return err
	}
	c.mu.Lock()
	e.follower = f
	c.mu.Unlock()
	if err := f.reader.Cache().Run(ctx); context.Cause(ctx) == nil {
		return err
	}
	return context.Cause(ctx)
}

// newFollower returns the follower of a resource. gone is called when the server no longer has it.
func (c *caches) newFollower(about *resource, gone func(error)) (*follower, error) {
	f := newFormat(about.kind, about.dynamic)
	var from *source
	cache, err := watchcache.New(watchcache.Config{
		GroupResource: about.GroupResource(), ResourcePrefix: "/" + about.Resource, Namespaced: about.namespaced,
		SourceName: "the API server", SourcePrefix: about.Resource + "/",
		Codec: f, NewFunc: f.newDocument, GetAttrs: f.attributes, Metrics: c.metrics, Store: c.store,
	}, func(cache *watchcache.Cache) (_ watchcache.Source, err error) {
		from, err = newSource(c.server, about.GroupVersionResource, f, cache, gone)
		return from, err
	})
	if err != nil {
		return nil, err
	}
	reader, err := readpath.NewReader(readpath.Resource{
		Cache: cache, Resource: about.GroupVersionResource, Kind: about.kind, ListKind: about.listKind, Namespaced: about.namespaced,
		Dynamic: about.dynamic, Serializer: scheme.Codecs.WithoutConversion(), Warning: about.warning, FieldLabel: f.fieldLabel,
		Predicate: func(label labels.Selector, field fields.Selector) apistorage.SelectionPredicate {
			return apistorage.SelectionPredicate{Label: label, Field: field, GetAttrs: f.attributes}
		},
	}, c.budget)
	return &follower{reader, from}, err
}
