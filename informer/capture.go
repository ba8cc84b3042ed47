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

// Direct lets the informers of a group read the server over source/kube instead of their
// ListerWatchers, in less time and with less memory. The ListerWatcher then only determines
// what to read.
//
//	group := informer.NewGroup(informer.Direct(cfg))
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Cache: cache.Options{NewInformer: group.NewSharedIndexInformer}})
//
// cfg must be the configuration that the ListerWatchers' clients are made from, after
// this call: it wraps cfg's transport, to see the request of a client without sending it.
// A ListerWatcher without contexts, of another configuration, or whose request is not for a
// resource in a namespace with selectors, is used as it is.
func Direct(cfg *rest.Config) Option {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return captureTransport{next} })
	cfg = rest.CopyConfig(cfg)
	return func(s *settings) { s.direct, s.paged = cfg, true }
}

// captureTransport does not send requests whose context has a capturedRequest.
type captureTransport struct{ http.RoundTripper }

// capturedRequest receives the URL of a request that is not sent.
type capturedRequest struct{ url *url.URL }

type captureKey struct{}

var errCaptured = errors.New("the request was captured and not sent")

func (o captureTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if q, ok := r.Context().Value(captureKey{}).(*capturedRequest); ok {
		q.url = r.URL
		return nil, errCaptured
	}
	return o.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below.
func (o captureTransport) WrappedRoundTripper() http.RoundTripper { return o.RoundTripper }

// lazySource is the source of a ListerWatcher: the server itself where that is possible,
// else the ListerWatcher. The first request decides.
type lazySource struct {
	lw      cache.ListerWatcher
	example runtime.Object
	name    string
	cached  func(keepwatch.Key) *item.Item
	settings
	source // nil until then
}

// resolve decides which source to use. Only the reflector's goroutine calls it.
func (c *lazySource) resolve(ctx context.Context) source {
	if c.source == nil {
		c.source = c.decide(ctx)
	}
	return c.source
}

func (c *lazySource) decide(ctx context.Context) source {
	if c.direct != nil && decodable(c.example) {
		if set, ok := c.capture(ctx); ok {
			kind := c.example.GetObjectKind().GroupVersionKind()
			d := &direct{cfg: c.direct, example: c.example, kind: kind, cached: c.cached, settings: set}
			if d.open(set.resource) == nil {
				return d
			}
		}
	}
	return listWatchSource{listwatch.New(c.lw, c.name)}
}

// listWatchSource is a ListerWatcher as a source. Its resource is not known.
type listWatchSource struct{ *listwatch.Source }

func (listWatchSource) Resource() schema.GroupVersionResource { return schema.GroupVersionResource{} }

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

// capture finds out what the ListerWatcher reads.
func (c *lazySource) capture(ctx context.Context) (settings, bool) {
	lw := c.lw
	if l, ok := lw.(*cache.ListWatch); ok && l.ListWithContextFunc == nil {
		return settings{}, false
	}
	withContext, ok := lw.(cache.ListerWatcherWithContext)
	if !ok {
		return settings{}, false
	}
	// With a limit, in case that a transport below sends it.
	q := &capturedRequest{}
	_, err := withContext.ListWithContext(context.WithValue(ctx, captureKey{}, q), metav1.ListOptions{Limit: 1})
	if err == nil || q.url == nil {
		return settings{}, false
	}
	return c.parseListRequest(q.url)
}

// parseListRequest parses the URL of a list request.
func (c *lazySource) parseListRequest(u *url.URL) (settings, bool) {
	s := c.settings
	host, _, err := rest.DefaultServerUrlFor(c.direct)
	if err != nil || u.Host != host.Host || u.Scheme != host.Scheme {
		return s, false
	}
	path, ok := strings.CutPrefix(u.Path, strings.TrimSuffix(host.Path, "/")+"/")
	if !ok {
		return s, false
	}
	if s.resource, s.namespace, ok = resourceOf(strings.Split(path, "/")); !ok {
		return s, false
	}
	for name, values := range u.Query() {
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

// resourceOf parses a path like api/v1/namespaces/web/pods or apis/apps/v1/deployments.
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

func (c *lazySource) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	return c.resolve(ctx).List(ctx, req)
}

func (c *lazySource) StreamList(ctx context.Context, notOlderThan keepwatch.Revision, emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return c.resolve(ctx).StreamList(ctx, notOlderThan, emit)
}

func (c *lazySource) Newest(ctx context.Context) (keepwatch.Revision, error) {
	return c.resolve(ctx).Newest(ctx)
}

func (c *lazySource) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	return c.resolve(ctx).Watch(ctx, from)
}
