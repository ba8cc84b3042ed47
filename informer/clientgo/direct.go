package clientgo

import (
	"context"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Direct lets the informers of a group read the server over source/kube instead of their
// ListerWatchers, in less time and with less memory. The ListerWatchers then only determine
// what to read. Direct returns a copy of cfg, from which their clients must be made: its
// transport lets a group see the request of a client without sending it. Direct does not
// change cfg.
//
//	cfg, direct := clientgo.Direct(cfg)
//	group := clientgo.NewGroup(direct)
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Cache: cache.Options{NewInformer: group.NewSharedIndexInformer}})
//
// A ListerWatcher is used as it is if it takes no context, if its request is not for a
// resource in a namespace with selectors, or if its client may have another identity: if it
// was made from another configuration, or from a copy with other credentials, impersonation,
// TLS options or transport, or with a wrapper that adds a header. Configurations with Dial or
// Proxy cannot be compared, so their ListerWatchers are used.
func Direct(cfg *rest.Config) (forClients *rest.Config, direct Option) {
	r := newReader(cfg)
	return copyConfig(r.clients), func(s *settings) { s.direct, s.follow.Paged = r, true }
}

// listRequest is what a LIST asks for.
type listRequest struct {
	resource       schema.GroupVersionResource
	namespace      string
	labels, fields string
}

// capture returns the LIST that the ListerWatcher sends. ok is false if it is unknown, or
// cannot be sent by another client.
func (s *lazySource) capture(ctx context.Context) (r listRequest, ok bool) {
	if l, ok := s.lw.(*cache.ListWatch); ok && l.ListWithContextFunc == nil {
		return r, false
	}
	lw, ok := s.lw.(cache.ListerWatcherWithContext)
	if !ok {
		return r, false
	}
	capture, q := capturing(ctx)
	// The limit is for a transport that sends the request nevertheless.
	_, err := lw.ListWithContext(capture, metav1.ListOptions{Limit: 1})
	if err == nil || q.url == nil || !q.sentAs(ctx, s.direct) {
		return r, false
	}
	return parseListRequest(s.direct.config, q.url)
}

// parseListRequest parses the URL of a LIST. ok is false if the URL is not of cfg's server,
// or has other parameters than selectors.
func parseListRequest(cfg *rest.Config, u *url.URL) (r listRequest, ok bool) {
	host, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil || u.Host != host.Host || u.Scheme != host.Scheme {
		return r, false
	}
	path, ok := strings.CutPrefix(u.Path, strings.TrimSuffix(host.Path, "/")+"/")
	if !ok {
		return r, false
	}
	if r.resource, r.namespace, ok = resourceOf(strings.Split(path, "/")); !ok {
		return r, false
	}
	for name, values := range u.Query() {
		switch name {
		case "labelSelector":
			r.labels = values[0]
		case "fieldSelector":
			r.fields = values[0]
		case "limit":
		default:
			return r, false
		}
	}
	return r, true
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
