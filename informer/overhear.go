package informer

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/informer/internal/listwatch"
)

// Direct lets the informers of a group read the server themselves, where a
// ListerWatcher would have read and decoded for them: with less memory and less
// time. The ListerWatcher then says only what to read.
//
//	group := informer.NewGroup(informer.Direct(cfg))
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Cache: cache.Options{NewInformer: group.NewSharedIndexInformer}})
//
// cfg must be the configuration that the ListerWatchers' clients are made of, after
// this call: it wraps cfg's transport, to see what a client would ask for without
// asking the server. A ListerWatcher that knows no context, is of another
// configuration, or asks for something else than a resource in a namespace under
// selectors, is used as it is.
func Direct(cfg *rest.Config) Option {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return overhearing{next} })
	cfg = rest.CopyConfig(cfg)
	return func(s *settings) { s.direct, s.paged = cfg, true }
}

// overhearing is a transport that keeps what is only a question to itself.
type overhearing struct{ http.RoundTripper }

// question is carried by the context of a request that is not to be sent.
type question struct{ asked *url.URL }

type questionKey struct{}

var errOverheard = errors.New("the request was not to be sent")

func (o overhearing) RoundTrip(r *http.Request) (*http.Response, error) {
	if q, ok := r.Context().Value(questionKey{}).(*question); ok {
		q.asked = r.URL
		return nil, errOverheard
	}
	return o.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below.
func (o overhearing) WrappedRoundTripper() http.RoundTripper { return o.RoundTripper }

// chosen is the source of a ListerWatcher: that itself or, where it can be, the
// server directly. It is chosen with the first request.
type chosen struct {
	lw      cache.ListerWatcher
	example runtime.Object
	name    string
	held    func(keepwatch.Key) *item.Item
	settings
	source // nil until then
}

// choose is called by the one who follows the source.
func (c *chosen) choose(ctx context.Context) source {
	if c.source == nil {
		c.source = c.decide(ctx)
	}
	return c.source
}

func (c *chosen) decide(ctx context.Context) source {
	if c.direct != nil && decodable(c.example) {
		if set, ok := c.overhear(ctx); ok {
			kind := c.example.GetObjectKind().GroupVersionKind()
			d := &direct{cfg: c.direct, example: c.example, kind: kind, held: c.held, settings: set}
			if d.open(set.resource) == nil {
				return d
			}
		}
	}
	return client{listwatch.New(c.lw, c.name)}
}

// client is a ListerWatcher as a source. What it reads is its secret.
type client struct{ *listwatch.Source }

func (client) Resource() schema.GroupVersionResource { return schema.GroupVersionResource{} }

// decodable reports whether objects like the example can be decoded.
func decodable(example runtime.Object) bool {
	switch example.(type) {
	case nil:
		return false
	case *unstructured.Unstructured:
		return true
	case runtime.Unstructured:
		return false
	}
	_, ok := example.(metav1.Object)
	return ok && reflect.TypeOf(example).Kind() == reflect.Pointer && reflect.TypeOf(example).Elem().Kind() == reflect.Struct
}

// overhear finds out what the ListerWatcher reads.
func (c *chosen) overhear(ctx context.Context) (settings, bool) {
	lw := c.lw
	if l, ok := lw.(*cache.ListWatch); ok && l.ListWithContextFunc == nil {
		return settings{}, false
	}
	withContext, ok := lw.(cache.ListerWatcherWithContext)
	if !ok {
		return settings{}, false
	}
	// Should it be sent after all, it is a small one.
	q := &question{}
	_, err := withContext.ListWithContext(context.WithValue(ctx, questionKey{}, q), metav1.ListOptions{Limit: 1})
	if err == nil || q.asked == nil {
		return settings{}, false
	}
	return c.understand(q.asked)
}

// understand takes a request for a list apart.
func (c *chosen) understand(asked *url.URL) (settings, bool) {
	s := c.settings
	host, _, err := rest.DefaultServerUrlFor(c.direct)
	if err != nil || asked.Host != host.Host || asked.Scheme != host.Scheme {
		return s, false
	}
	path, ok := strings.CutPrefix(asked.Path, strings.TrimSuffix(host.Path, "/")+"/")
	if !ok {
		return s, false
	}
	if s.resource, s.namespace, ok = resourceOf(strings.Split(path, "/")); !ok {
		return s, false
	}
	for name, values := range asked.Query() {
		switch name {
		case "labelSelector":
			s.labels = values[0]
		case "fieldSelector":
			s.fields = values[0]
		case "limit":
		default:
			return s, false
		}
	}
	return s, true
}

// resourceOf reads a path like api/v1/namespaces/web/pods or apis/apps/v1/deployments.
func resourceOf(path []string) (r schema.GroupVersionResource, namespace string, ok bool) {
	switch {
	case len(path) > 2 && path[0] == "api":
		path = path[1:]
	case len(path) > 3 && path[0] == "apis":
		r.Group, path = path[1], path[2:]
	default:
		return r, "", false
	}
	r.Version, path = path[0], path[1:]
	if len(path) == 3 && path[0] == "namespaces" {
		namespace, path = path[1], path[2:]
	}
	if len(path) != 1 {
		return r, "", false
	}
	r.Resource = path[0]
	return r, namespace, true
}

func (c *chosen) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	return c.choose(ctx).List(ctx, req)
}

func (c *chosen) StreamList(ctx context.Context, notOlderThan keepwatch.Revision, emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return c.choose(ctx).StreamList(ctx, notOlderThan, emit)
}

func (c *chosen) Newest(ctx context.Context) (keepwatch.Revision, error) {
	return c.choose(ctx).Newest(ctx)
}

func (c *chosen) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	return c.choose(ctx).Watch(ctx, from)
}
