package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
	"github.com/keepwatch/keepwatch/server/proxy/internal/discovery"
	"github.com/keepwatch/keepwatch/server/proxy/internal/fairness"
	"github.com/keepwatch/keepwatch/server/proxy/internal/index"
	"github.com/keepwatch/keepwatch/server/proxy/internal/tables"
	"github.com/keepwatch/keepwatch/server/proxy/internal/upstream"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/store"
)

const (
	// maxCaches bounds the resources that are followed, and those whose caches have failed.
	maxCaches = 1000
	// failedFor is how long a resource is left to the server after its cache has failed.
	failedFor = 30 * time.Second
	// unansweredFor is the same when the server did not say what the resource is, as while it starts. Watches that are
	// forwarded until then end with the server and its history.
	unansweredFor = time.Second
)

// cachesOptions are what caches need of a proxy and its Config.
type cachesOptions struct {
	memoryLimit int64
	cached      Selection
	slimming    slimming     // DropManagedFields
	index       *index.Index // nil without a State
	history     store.Options
	budget      *readpath.Budget
	metrics     *watchcache.Metrics
	probe       *access.Probe // nil if the server is always ready
}

// caches follows resources from their first use on. It is safe for concurrent use.
type caches struct {
	cachesOptions
	server *rest.Config
	// definitions are asked for once for all resources.
	definitions *kube.Definitions
	describer   discovery.Server
	freeMemory  func() // returns garbage to the system
	// These are the constants; tests have their own.
	firstListWait, namedRetry, belongsEvery, memoryCheck time.Duration
	largeList                                            int64

	mu      sync.Mutex
	running context.Context // of run; nil before
	active  sync.WaitGroup
	// unfollowed is why resources that cached names are not followed, unless that is not known yet.
	unfollowed map[schema.GroupResource]string
	all        map[schema.GroupVersionResource]*entry
}

// entry is a resource that is followed, or has failed.
type entry struct {
	ctx       context.Context
	gone      context.CancelCauseFunc               // ends ctx
	about     *discovery.Resource                   // nil until the server has described the resource
	followers map[verbatim.Representation]*follower // each from its first use on
	until     time.Time                             // when it may be followed again; zero while it is followed
	why       error                                 // why the server has not described the resource
	needs     int64                                 // the bytes of its objects, if it was given up for memory
	returns   bool                                  // it will be followed again
	described bool                                  // about was known once
	begun     time.Time
	early     bool           // no request has begun it
	started   chan struct{}  // closed when about is set, or the resource is left to the server
	relisted  chan struct{}  // has room for one: about may be another
	recorded  sync.WaitGroup // runs while the index on disk is written
}

// follower follows a resource in one representation.
type follower struct {
	resource schema.GroupVersionResource
	reader   *readpath.Reader
	tables   *tables.Objects
	source   *upstream.Source
	format   *verbatim.Format
	gone     func(error) // leaves the resource to the server
	begun    time.Time
	end      context.CancelFunc // ends this follower alone
	// early is true until the first request for the representation: it was followed because Config names the resource.
	early bool // guarded by caches.mu
	activity
}

func newCaches(server *rest.Config, o cachesOptions) (*caches, error) {
	describer, err := discovery.New(server)
	if err != nil {
		return nil, err
	}
	definitions, err := kube.NewDefinitions(server)
	if err != nil {
		return nil, err
	}
	return &caches{
		cachesOptions: o, server: server, definitions: definitions, describer: describer,
		freeMemory: debug.FreeOSMemory, firstListWait: firstListWait, namedRetry: namedRetry,
		belongsEvery: discovery.BelongsEvery, memoryCheck: memoryCheck, largeList: largeList,
		all: map[schema.GroupVersionResource]*entry{},
	}, nil
}

// run lets resources be followed until ctx ends, and waits until none is.
func (c *caches) run(ctx context.Context) {
	// nothing is followed before: its records must be known, and kept
	again := c.index.Load(ctx, c.describer, func(of schema.GroupVersionResource, as verbatim.Representation) bool {
		return c.cached.Allows(of.GroupResource()) && c.slimming.mayUse(as)
	})
	c.mu.Lock()
	c.running = ctx
	for of, representations := range again {
		c.begin(of, func(*discovery.Resource) []verbatim.Representation { return representations })
	}
	c.index.Begun()
	c.mu.Unlock()
	named, _ := c.cached.Named()
	for _, name := range named {
		c.active.Go(func() { c.followNamed(ctx, name) })
	}
	<-ctx.Done()
	c.mu.Lock()
	c.running = nil
	c.mu.Unlock()
	c.active.Wait()
}

// ready returns the follower that answers a request, if it has caught up with the server, or nil. If there is none, it
// begins to follow the resource as the response needs it. It does not if the server must answer, or has
// failed to a short time ago. With nil it returns the reason to forward the request.
func (c *caches) ready(q *http.Request, info *request.RequestInfo) (*follower, reason) {
	of := resourceOf(info)
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[of]
	switch {
	case e == nil && !c.hasRoom(), e != nil && !e.until.IsZero() && (time.Now().Before(e.until) || !c.hasMemory(e.needs)):
		return nil, reasonNotReady
	case e == nil, !e.until.IsZero():
		if !c.beginFor(of, q, info) {
			return nil, reasonEncoding
		}
		return nil, reasonNotReady
	case e.about == nil:
		return nil, reasonNotReady
	}
	as, ok := c.representationOf(e.about, q, info)
	if !ok {
		return nil, reasonEncoding
	}
	f := e.followers[as]
	if f != nil {
		f.early = false
	}
	switch {
	case f == nil:
		c.follow(e, as)
		c.dropEarly(e)
		return nil, reasonNotReady
	case f.reader.Cache().ReadinessCheck() != nil:
		return nil, reasonNotReady
	case f.format.HasUnknownMetadata() && wantsMetadata(q):
		return nil, reasonEncoding
	}
	return f, ""
}

// following returns the entry of a resource that is followed, and has not failed, or nil.
func (c *caches) following(info *request.RequestInfo) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[resourceOf(info)]; e != nil && e.until.IsZero() {
		return e
	}
	return nil
}

// follows reports whether a resource is followed, and has not failed.
func (c *caches) follows(info *request.RequestInfo) bool { return c.following(info) != nil }

// hasNoNamespaces reports whether a resource is followed whose objects belong to no namespace. Namespaces belong to
// themselves. What is not followed may be another resource now.
func (c *caches) hasNoNamespaces(info *request.RequestInfo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[resourceOf(info)]
	return e != nil && e.until.IsZero() && e.about != nil && !e.about.Namespaced &&
		e.about.GroupResource() != namespaceObjects
}

func resourceOf(info *request.RequestInfo) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
}

// beginFor begins to follow a resource as the response to a request needs it. It reports false if the server must
// answer that. c.mu is locked.
func (c *caches) beginFor(of schema.GroupVersionResource, q *http.Request, info *request.RequestInfo) bool {
	mayBeCustom := strings.Contains(of.Group, ".")
	if encodingOf(&discovery.Resource{Protobuf: true}, q, info) == nil && !(mayBeCustom && isTable(q, info, true)) {
		return false
	}
	first := &http.Request{Method: q.Method, URL: q.URL, Header: q.Header.Clone()}
	c.begin(of, func(about *discovery.Resource) []verbatim.Representation {
		if as, ok := c.representationOf(about, first, info); ok {
			return []verbatim.Representation{as}
		}
		return nil
	})
	return true
}

// begin begins to follow a resource, at first in some representations. c.mu is locked.
func (c *caches) begin(of schema.GroupVersionResource, first func(*discovery.Resource) []verbatim.Representation) {
	if c.running == nil {
		return
	}
	running := c.running
	before := c.all[of]
	e := &entry{followers: map[verbatim.Representation]*follower{}, described: before != nil && before.described,
		begun:   time.Now(),
		started: make(chan struct{}), relisted: make(chan struct{}, 1)}
	e.ctx, e.gone = context.WithCancelCause(running)
	c.all[of] = e
	c.active.Go(func() {
		err := c.serve(e, of, first)
		e.recorded.Wait()
		if running.Err() != nil {
			return
		}
		logLeft(e, of, err)
		if e.answered(err) {
			c.index.Drop(of) // otherwise the next attempt continues it
		}
		c.fail(e, err)
	})
}

// logLeft logs why a resource is left to the server: as an error if it was followed, or the server refuses it to the
// proxy. Anybody can ask for resources that do not exist or cannot be watched.
func logLeft(e *entry, of schema.GroupVersionResource, reason error) {
	refused, ok := errors.AsType[discovery.Refusal](reason)
	if errors.Is(reason, discovery.ErrRedescribed) {
		klog.InfoS("A resource is followed anew", "resource", of, "reason", reason)
		return
	}
	if e.about != nil || ok && refused.Code != http.StatusNotFound && e.answered(reason) {
		klog.ErrorS(reason, "A resource is left to the server", "resource", of)
		return
	}
	klog.V(2).InfoS("A resource is left to the server", "resource", of, "reason", reason)
}

// serve describes a resource and follows it, at first in some representations, until the server no longer has it, or
// run ends.
func (c *caches) serve(e *entry, of schema.GroupVersionResource,
	first func(*discovery.Resource) []verbatim.Representation) error {
	defer e.gone(nil)
	about, err := c.describer.Describe(e.ctx, of)
	if err != nil {
		if unready := c.probe.Ready(e.ctx); unready != nil {
			err = fmt.Errorf("%w, and answers: %v", unready, err) // not wrapped: the refusal does not count
		}
		c.mu.Lock()
		e.why = err
		c.mu.Unlock()
		close(e.started)
		return err
	}
	c.mu.Lock()
	e.about, e.described = about, true
	for _, as := range first(about) {
		c.follow(e, as)
		if f := e.followers[as]; f != nil {
			f.early = e.early
		}
	}
	c.mu.Unlock()
	close(e.started)
	return c.describer.AwaitChange(e.ctx, about, c.belongsEvery, e.relisted)
}

// follow begins to follow a resource in a representation. c.mu is locked.
func (c *caches) follow(e *entry, as verbatim.Representation) {
	f, err := c.newFollower(e.about, as, e.gone, func() {
		select {
		case e.relisted <- struct{}{}:
		default:
		}
	})
	if err != nil {
		e.gone(err)
		return
	}
	e.followers[as] = f
	var ctx context.Context
	ctx, f.end = context.WithCancel(e.ctx)
	c.active.Go(func() {
		if err := f.reader.Cache().Run(ctx); ctx.Err() == nil {
			e.gone(err)
		}
	})
	c.active.Go(func() { c.returnGarbage(ctx, f) })
	if c.index.Covers(f.resource) {
		e.recorded.Go(func() {
			c.index.Record(f.resource, as, f.reader.Cache())
			if ctx.Err() != nil && e.ctx.Err() == nil {
				c.index.DropRepresentation(f.resource, as)
			}
		})
	}
}

// hasRoom reports whether another resource can be followed, and drops failed ones for that. c.mu is locked.
func (c *caches) hasRoom() bool {
	if len(c.all) < maxCaches {
		return true
	}
	for of, e := range c.all {
		if !e.until.IsZero() {
			delete(c.all, of)
		}
	}
	return len(c.all) < maxCaches
}

// answered reports whether the server has said what the resource is, or why it cannot be followed. reason is why the
// resource is left to the server.
func (e *entry) answered(reason error) bool { return e.about != nil || answers(reason) }

// answers reports whether the server has answered with this error what a resource is, being ready.
func answers(err error) bool { return discovery.IsAnswer(err) && !errors.Is(err, access.ErrNotReady) }

// fail leaves a resource to the server for some time. It will be followed again if there was no memory for it, if the
// server describes it in another way, or if it has described it before and has not said what it is now. What the
// server has no longer, or refuses to the proxy, need not return.
func (c *caches) fail(e *entry, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.followers, e.until = nil, time.Now().Add(failedFor)
	if !e.answered(cause) || errors.Is(cause, discovery.ErrRedescribed) {
		e.until, e.returns = time.Now().Add(unansweredFor), e.described
	}
	if full, ok := errors.AsType[outOfMemory](cause); ok {
		e.needs, e.until, e.returns = full.bytes, time.Now().Add(forgottenFor), true
	}
}

// returns reports whether a resource is followed, or will be again.
func (c *caches) returns(info *request.RequestInfo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[resourceOf(info)]
	return e != nil && (e.until.IsZero() || e.returns)
}

// newFollower returns a follower of a resource in a representation. gone is called when the server no longer has the
// resource, and relisted after each list but the first.
func (c *caches) newFollower(about *discovery.Resource, as verbatim.Representation,
	gone func(error), relisted func()) (*follower, error) {
	f := verbatim.NewFormat(about.Layout, as)
	history := c.history
	history.Records = c.index.Take(about.GroupVersionResource, as)
	var from *upstream.Source
	cache, err := watchcache.New(watchcache.Config{
		GroupResource: about.GroupResource(), ResourcePrefix: "/" + about.Resource, Namespaced: about.Namespaced,
		SourceName: "the API server", SourcePrefix: about.Resource + "/",
		Codec: f, NewFunc: f.NewDocument, GetAttrs: f.Attributes, Sharded: true, Metrics: c.metrics, Store: history,
		Deleted: f.Deleted,
	}, func(cache *watchcache.Cache) (_ watchcache.Source, err error) {
		from, err = upstream.New(c.server, c.definitions, about.GroupVersionResource, f, cache, gone, relisted)
		return seatless{from}, err
	})
	if err != nil {
		return nil, err
	}
	described := readpath.Resource{
		Cache: cache, Resource: about.GroupVersionResource, Kind: about.Kind, ListKind: about.ListKind,
		Namespaced: about.Namespaced,
		Dynamic:    about.Dynamic, Serializer: serializer, Warning: about.Warning, FieldLabel: f.FieldLabel,
		Predicate: func(label labels.Selector, field fields.Selector) apistorage.SelectionPredicate {
			return apistorage.SelectionPredicate{Label: label, Field: field, GetAttrs: f.Attributes}
		},
	}
	reader, err := readpath.NewReader(described, c.budget)
	return &follower{resource: about.GroupVersionResource, reader: reader, source: from, format: f, gone: gone,
		tables: &tables.Objects{Reader: reader, Described: described, Format: f}, begun: time.Now()}, err
}

// seatless is a source for which a read gives its seats back while the server takes long to confirm a revision.
type seatless struct{ *upstream.Source }

func (s seatless) Newest(ctx context.Context) (keepwatch.Revision, error) {
	defer fairness.LeaveIfLong(ctx)()
	return s.Source.Newest(ctx)
}

// continues reports whether memory answers a watch from a revision on, and the server answers.
func (c *caches) continues(q *http.Request, info *request.RequestInfo, from keepwatch.Revision, selective bool) bool {
	f := c.current(q, info)
	if f == nil || !c.probe.SilentSince().IsZero() || !f.source.FailingSince().IsZero() || !f.reader.Answers(q, info) {
		return false
	}
	cache := f.reader.Cache()
	return cache.Revision() >= from && cache.CanResume(from, selective)
}

// current returns the follower that answers a request, if it has caught up with the server, or nil. It begins nothing.
func (c *caches) current(q *http.Request, info *request.RequestInfo) *follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[resourceOf(info)]
	if e == nil || !e.until.IsZero() || e.about == nil {
		return nil
	}
	as, ok := c.representationOf(e.about, q, info)
	f := e.followers[as]
	if !ok || f == nil || f.reader.Cache().ReadinessCheck() != nil || f.format.HasUnknownMetadata() && wantsMetadata(q) {
		return nil
	}
	return f
}
