package proxy

import (
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// forwarder sends requests to the server as they are. The credentials in them are the caller's; the proxy adds
// none.
type forwarder struct {
	location  *url.URL
	transport http.RoundTripper
	upgrades  utilproxy.UpgradeRequestRoundTripper
}

// newForwarder returns a forwarder to the server of a configuration, of which it uses the address and the
// certificate authority.
func newForwarder(server *rest.Config) (*forwarder, error) {
	anonymous := rest.AnonymousClientConfig(server)
	location, _, err := rest.DefaultServerUrlFor(anonymous)
	if err != nil {
		return nil, err
	}
	f := &forwarder{location: location}
	if f.transport, err = rest.TransportFor(anonymous); err != nil {
		return nil, err
	}
	upgraded := rest.CopyConfig(anonymous)
	upgraded.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
	connection, err := rest.TransportFor(upgraded)
	if err != nil {
		return nil, err
	}
	f.upgrades = utilproxy.NewUpgradeRequestRoundTripper(connection, utilproxy.MirrorRequest)
	return f, nil
}

// ServeHTTP forwards a request, and copies the response as it arrives.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	location := *q.URL
	location.Scheme, location.Host = f.location.Scheme, f.location.Host
	location.Path = joinPath(f.location.Path, q.URL.Path)
	location.RawPath = ""
	handler := utilproxy.NewUpgradeAwareHandler(&location, f.transport, false, false, f)
	handler.UpgradeTransport = f.upgrades
	handler.UseLocationHost = true
	handler.FlushInterval = -time.Nanosecond // at once: events of a watch must not wait
	handler.ServeHTTP(w, q)
}

// joinPath returns the path below a prefix, which servers behind another proxy have.
func joinPath(prefix, path string) string {
	if prefix == "/" {
		return path
	}
	return prefix + path
}

// Error answers a request that could not be forwarded.
func (f *forwarder) Error(w http.ResponseWriter, q *http.Request, err error) {
	if q.Context().Err() != nil {
		return // the client is gone
	}
	klog.V(2).InfoS("The server does not answer", "err", err)
	unavailable := apierrors.NewServiceUnavailable("the API server behind the proxy is unavailable")
	responsewriters.ErrorNegotiated(unavailable, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, q)
}
