package proxy

import (
	"net"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
)

// forwarder sends requests to the server as they are.
type forwarder struct {
	location  *url.URL
	transport http.RoundTripper
	upgrades  utilproxy.UpgradeRequestRoundTripper
}

// newForwarder returns a forwarder to the server of a configuration, whose credentials it adds to requests.
func newForwarder(server *rest.Config) (*forwarder, error) {
	location, _, err := rest.DefaultServerUrlFor(server)
	if err != nil {
		return nil, err
	}
	f := &forwarder{location: location}
	if f.transport, err = rest.TransportFor(server); err != nil {
		return nil, err
	}
	f.upgrades, err = upgradeTransport(server)
	return f, err
}

// upgradeTransport returns a transport for requests that upgrade their connection, which HTTP/2 does not have.
func upgradeTransport(server *rest.Config) (utilproxy.UpgradeRequestRoundTripper, error) {
	config, err := server.TransportConfig()
	if err != nil {
		return nil, err
	}
	secure, err := transport.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	connection := &http.Transport{TLSClientConfig: secure, DialContext: dialer.DialContext, Proxy: server.Proxy}
	credentials, err := transport.HTTPWrappersForConfig(config, utilproxy.MirrorRequest)
	if err != nil {
		return nil, err
	}
	return utilproxy.NewUpgradeRequestRoundTripper(connection, credentials), nil
}

// ServeHTTP forwards a request, and copies the response as it arrives.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	location := *q.URL
	location.Scheme, location.Host = f.location.Scheme, f.location.Host
	location.Path = joinPath(f.location.Path, q.URL.Path)
	if q.URL.RawPath != "" { // encoded slashes stay encoded
		location.RawPath = joinPath(f.location.EscapedPath(), q.URL.RawPath)
	}
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
