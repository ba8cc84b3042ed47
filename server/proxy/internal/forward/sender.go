package forward

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// sender sends requests to the server as they are.
type sender struct {
	location  *url.URL
	transport http.RoundTripper
	// Of requests that upgrade their connection: how to connect, and what adds the credentials.
	upgrades, upgradeCredentials http.RoundTripper
}

// newSender returns a sender to the server of a configuration, whose credentials it adds to requests.
func newSender(server *rest.Config) (*sender, error) {
	location, _, err := rest.DefaultServerUrlFor(server)
	if err != nil {
		return nil, err
	}
	f := &sender{location: location}
	server = rest.CopyConfig(server)
	server.DisableCompression = true // a response is forwarded as the client has asked for it
	if server.Transport == nil {
		receiveLittle(server)
	}
	if f.transport, err = rest.TransportFor(server); err != nil {
		return nil, err
	}
	f.transport = takeoverTransport{f.transport}
	return f, f.upgradeTo(server)
}

// receiveBuffer bounds what is received of a response before the client has read it. By default it is 4 MiB: many
// clients that do not read would use all memory. A server that is 20 ms away sends 6 MB/s of one response into
// this buffer.
const receiveBuffer = 128 << 10

// receiveLittle gives a configuration a transport of its own, with a small buffer for each response.
func receiveLittle(server *rest.Config) {
	if server.Dial == nil { // client-go shares no transport that has a dialer
		server.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	wrap := server.WrapTransport
	server.WrapTransport = func(base http.RoundTripper) http.RoundTripper {
		if t := transportBelow(base); t != nil {
			t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: receiveBuffer}
		}
		if wrap != nil {
			return wrap(base)
		}
		return base
	}
}

// transportBelow returns the transport that client-go has wrapped to follow changes of certificates, or nil.
func transportBelow(rt http.RoundTripper) *http.Transport {
	for {
		switch t := rt.(type) {
		case *http.Transport:
			return t
		case utilnet.RoundTripperWrapper:
			rt = t.WrappedRoundTripper()
		default:
			return nil
		}
	}
}

// upgradeTo sets the transport of requests that upgrade their connection, which HTTP/2 does not have.
func (f *sender) upgradeTo(server *rest.Config) error {
	config, err := server.TransportConfig()
	if err != nil {
		return err
	}
	secure, err := transport.TLSConfigFor(config)
	if err != nil {
		return err
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	f.upgrades = &http.Transport{TLSClientConfig: secure, Proxy: server.Proxy, DialContext: func(ctx context.Context,
		network, address string) (net.Conn, error) {
		connection, err := dialer.DialContext(ctx, network, address)
		if err == nil { // the wait for the server's answer has no other end while the server says nothing
			context.AfterFunc(ctx, func() { connection.Close() })
		}
		return connection, err
	}}
	f.upgradeCredentials, err = transport.HTTPWrappersForConfig(config, utilproxy.MirrorRequest)
	return err
}

// as returns a sender that impersonates a user. It adds the headers where the credentials are added: a client could
// have headers of the request removed, by naming them in its header Connection.
func (f *sender) as(u transport.ImpersonationConfig) *sender {
	as := *f
	as.transport = transport.NewImpersonatingRoundTripper(u, f.transport)
	as.upgradeCredentials = transport.NewImpersonatingRoundTripper(u, f.upgradeCredentials)
	return &as
}

// ServeHTTP forwards a request, and copies the response as it arrives. The client's header Connection ends here: a
// proxy on the way to the server would remove the headers that it names, which could be those that impersonate a user.
func (f *sender) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if httpstream.IsUpgradeRequest(q) { // net/http/httputil removes the header from other requests
		q = q.Clone(q.Context())
		q.Header.Set("Connection", "Upgrade")
	}
	location := *q.URL
	location.Scheme, location.Host = f.location.Scheme, f.location.Host
	location.Path = joinPath(f.location.Path, q.URL.Path)
	if q.URL.RawPath != "" { // encoded slashes stay encoded
		location.RawPath = joinPath(f.location.EscapedPath(), q.URL.RawPath)
	}
	handler := utilproxy.NewUpgradeAwareHandler(&location, f.transport, false, false, f)
	handler.UpgradeTransport = utilproxy.NewUpgradeRequestRoundTripper(f.upgrades, f.upgradeCredentials)
	handler.UseLocationHost = true
	// net/http/httputil flushes a response of unknown length after each write: a watch, a log. The handler's default
	// flushes others after 200 ms at most.
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
func (f *sender) Error(w http.ResponseWriter, q *http.Request, err error) {
	if q.Context().Err() != nil {
		return // the client is gone
	}
	klog.V(2).InfoS("The server does not answer", "err", err)
	Refuse(w, q, apierrors.NewServiceUnavailable("the API server behind the proxy is unavailable"))
}

// Refuse answers a request with an error of the proxy.
func Refuse(w http.ResponseWriter, q *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, q)
}
