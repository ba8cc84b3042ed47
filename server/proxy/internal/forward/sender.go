package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// sender sends requests to the server as they are.
type sender struct {
	location *url.URL
	// upgrades is the transport of requests that upgrade their connection, which HTTP/2 does not have.
	transport, upgrades http.RoundTripper
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
	own := server.Transport == nil
	if own {
		receiveLittle(server)
	}
	if f.transport, err = rest.TransportFor(server); err != nil {
		return nil, err
	}
	f.transport = takeoverTransport{f.transport}
	server.NextProtos = []string{"http/1.1"}
	if own { // net/http repeats a GET, such as an exec over WebSockets, if a connection that it has used before ends
		adapt(server, func(t *http.Transport) { t.DisableKeepAlives = true })
	}
	f.upgrades, err = rest.TransportFor(server)
	return f, err
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
	adapt(server, func(t *http.Transport) {
		t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: receiveBuffer}
	})
}

// adapt changes the transport that client-go makes for a configuration.
func adapt(server *rest.Config, change func(*http.Transport)) {
	wrap := server.WrapTransport
	server.WrapTransport = func(base http.RoundTripper) http.RoundTripper {
		if t := transportBelow(base); t != nil {
			change(t)
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

// as returns a sender that impersonates a user. It adds the headers where the credentials are added: a client could
// have headers of the request removed, by naming them in its header Connection.
func (f *sender) as(u transport.ImpersonationConfig) *sender {
	as := *f
	as.transport = transport.NewImpersonatingRoundTripper(u, f.transport)
	as.upgrades = transport.NewImpersonatingRoundTripper(u, f.upgrades)
	return &as
}

// flushAfter is how long a part of a response of known length may wait for the next one. Others, such as a watch or a
// log, are flushed after each write.
const flushAfter = 200 * time.Millisecond

// ServeHTTP forwards a request, and copies the response as it arrives. The client's header Connection ends here: a
// proxy on the way to the server would remove the headers that it names, which could be those that impersonate a user.
func (f *sender) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	to := httputil.NewSingleHostReverseProxy(f.location)
	to.Transport, to.FlushInterval, to.ErrorHandler = f.transport, flushAfter, f.unanswered
	q = q.Clone(q.Context())
	q.Host = f.location.Host
	kept, err := keepBody(q)
	defer keptBytes.Add(-kept)
	if err != nil {
		Refuse(w, q, apierrors.NewBadRequest("the body of the request could not be read: "+err.Error()))
		return
	}
	if httpstream.IsUpgradeRequest(q) { // net/http/httputil removes the header from other requests
		to.Transport = f.upgrades
		q.Header.Set("Connection", "Upgrade")
	}
	instead, _ := q.Context().Value(onlyErrors{}).(error)
	unforbidden, _ := q.Context().Value(unlessForbidden{}).(error)
	to.ModifyResponse = func(answer *http.Response) error {
		switch {
		case instead != nil && answer.StatusCode < http.StatusBadRequest:
			return instead
		case unforbidden != nil && answer.StatusCode == http.StatusForbidden:
			return unforbidden
		}
		w.Header().Del(auditinternal.HeaderAuditID) // the server has its own
		if both, ok := answer.Body.(io.ReadWriteCloser); ok && answer.StatusCode == http.StatusSwitchingProtocols {
			answer.Body = serverSide{both}
		}
		return nil
	}
	to.ServeHTTP(w, q)
}

// serverSide is the server's side of an upgraded connection. Both sides end with it: net/http/httputil takes its end
// for a half-close, ends TLS with the client, and leaves the connection open; clients in Java then wait for ever.
type serverSide struct{ io.ReadWriteCloser }

func (s serverSide) Read(b []byte) (int, error) {
	n, err := s.ReadWriteCloser.Read(b)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// CloseWrite passes the half-close of a client on.
func (s serverSide) CloseWrite() error {
	if c, ok := s.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return s.Close()
}

type onlyErrors struct{}

// OnlyErrors returns a request whose client receives the server's answer only if that is an error. In place of any
// other answer it receives instead.
func OnlyErrors(q *http.Request, instead *apierrors.StatusError) *http.Request {
	return q.WithContext(context.WithValue(q.Context(), onlyErrors{}, error(instead)))
}

type unlessForbidden struct{}

// UnlessForbidden returns a request whose client receives instead in place of a refusal of the server.
func UnlessForbidden(q *http.Request, instead *apierrors.StatusError) *http.Request {
	return q.WithContext(context.WithValue(q.Context(), unlessForbidden{}, error(instead)))
}

// unanswered answers a request that could not be forwarded.
func (f *sender) unanswered(w http.ResponseWriter, q *http.Request, err error) {
	if q.Context().Err() != nil {
		return // the client is gone
	}
	if instead, ok := errors.AsType[*apierrors.StatusError](err); ok {
		Refuse(w, q, instead)
		return
	}
	klog.V(2).InfoS("The server does not answer", "err", err)
	Refuse(w, q, apierrors.NewServiceUnavailable("the API server behind the proxy is unavailable"))
}

// Refuse answers a request with an error of the proxy.
func Refuse(w http.ResponseWriter, q *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, q)
}
