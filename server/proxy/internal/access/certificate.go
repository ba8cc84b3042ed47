package access

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
)

// Authorities is the ConfigMap in kube-system in which API servers publish the authorities of client certificates and
// of front proxies, and the headers of the latter.
const Authorities = "extension-apiserver-authentication"

// Keys of the two authorities in it. A server without one of them leaves its key out.
const (
	clientsKey      = "client-ca-file"
	frontProxiesKey = "requestheader-client-ca-file"
)

// certificates authenticates callers by client certificate, and by a front proxy's certificate and headers, with
// the authorities of the server, as k8s.io/apiserver does in front of an aggregated API. A nil *certificates knows
// none. It is safe for concurrent use.
type certificates struct {
	clients      *dynamiccertificates.ConfigMapCAController
	frontProxies *dynamiccertificates.ConfigMapCAController
	headers      *headerrequest.RequestHeaderAuthRequestController
	configMaps   typedcorev1.ConfigMapInterface
	published    atomic.Pointer[corev1.ConfigMap] // as it was read at first, or unpublished; nil before
	refused      atomic.Bool                      // the server did not show the ConfigMap at the last attempt
	read         wake                             // receives when an authority has been read
	authenticate authenticator.Request
}

// unpublished stands for a ConfigMap that the server does not have: no certificate is valid.
var unpublished = &corev1.ConfigMap{}

func newCertificates(client kubernetes.Interface) (*certificates, error) {
	clients, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", metav1.NamespaceSystem,
		Authorities, clientsKey, client)
	if err != nil {
		return nil, err
	}
	frontProxies, err := dynamiccertificates.NewDynamicCAFromConfigMapController("front-proxy-ca", metav1.NamespaceSystem,
		Authorities, frontProxiesKey, client)
	if err != nil {
		return nil, err
	}
	c := &certificates{clients: clients, frontProxies: frontProxies, read: make(wake, 1),
		configMaps: client.CoreV1().ConfigMaps(metav1.NamespaceSystem)}
	clients.AddListener(c.read)
	frontProxies.AddListener(c.read)
	c.headers = headerrequest.NewRequestHeaderAuthRequestController(Authorities, metav1.NamespaceSystem, client,
		"requestheader-username-headers",
		"requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix",
		"requestheader-allowed-names")
	c.authenticate, _, err = authenticatorfactory.DelegatingAuthenticatorConfig{
		ClientCertificateCAContentProvider: clients,
		RequestHeaderConfig: &authenticatorfactory.RequestHeaderConfig{
			CAContentProvider:   frontProxies,
			AllowedClientNames:  headerrequest.StringSliceProviderFunc(c.headers.AllowedClientNames),
			UsernameHeaders:     headerrequest.StringSliceProviderFunc(c.headers.UsernameHeaders),
			UIDHeaders:          headerrequest.StringSliceProviderFunc(c.headers.UIDHeaders),
			GroupHeaders:        headerrequest.StringSliceProviderFunc(c.headers.GroupHeaders),
			ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(c.headers.ExtraHeaderPrefixes),
		},
	}.New()
	return c, err
}

// run follows the ConfigMap until ctx ends. A nil *certificates follows none.
func (c *certificates) run(ctx context.Context) {
	if c == nil {
		return
	}
	var running sync.WaitGroup
	running.Go(func() { c.clients.Run(ctx, 1) })
	running.Go(func() { c.frontProxies.Run(ctx, 1) })
	running.Go(func() {
		c.learn(ctx)
		c.headers.Run(ctx, 1)
	})
	running.Wait()
}

// learn reads which authorities there are, and the headers of front proxies. It tries until it has, or ctx ends, also
// while the server says that it has no such ConfigMap: a new server publishes it some time after its start. A 404 that
// is no API server's says nothing.
func (c *certificates) learn(ctx context.Context) {
	tries := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 30 * time.Second}
	for delay := tries.DelayFunc(); !c.learnOnce(ctx); {
		again := time.NewTimer(delay())
		select {
		case <-again.C:
		case <-c.read:
		case <-ctx.Done():
		}
		if again.Stop(); ctx.Err() != nil {
			return
		}
	}
}

// learnOnce reports whether it has read the ConfigMap.
func (c *certificates) learnOnce(ctx context.Context) bool {
	published, err := c.configMaps.Get(ctx, Authorities, metav1.GetOptions{})
	if err == nil {
		err = c.headers.RunOnce(ctx)
	}
	absent := apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
	if absent {
		published = unpublished
	}
	if err == nil || absent {
		c.published.Store(published)
	}
	c.refused.Store(apierrors.IsForbidden(err) || apierrors.IsNotFound(err) && !absent)
	if err != nil {
		klog.V(2).InfoS("The authorities of client certificates are not known", "err", err)
	}
	return err == nil
}

// wake is a dynamiccertificates.Listener. It has room for one.
type wake chan struct{}

// Enqueue wakes.
func (w wake) Enqueue() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// known reports whether all of the server's authorities have been read, or it has none. With some of them alone, the
// request of a front proxy would be judged by a token that it passes on, and not by the user that it names.
func (c *certificates) known() bool {
	published := c.published.Load()
	if published == nil {
		return false
	}
	_, clients := c.clients.VerifyOptions()
	_, frontProxies := c.frontProxies.VerifyOptions()
	if published == unpublished {
		return !clients && !frontProxies // with one of them, learn reads at once that it is published
	}
	return (clients || published.Data[clientsKey] == "") && (frontProxies || published.Data[frontProxiesKey] == "")
}

// answered reports whether all of the authorities have been read, or cannot be. A nil *certificates waits for none.
func (c *certificates) answered() bool { return c == nil || c.known() || c.refused.Load() }

// removeHeaders removes the headers of front proxies.
func (c *certificates) removeHeaders(h http.Header) {
	headerrequest.ClearAuthenticationHeaders(h, headerrequest.StringSliceProviderFunc(c.headers.UsernameHeaders),
		headerrequest.StringSliceProviderFunc(c.headers.UIDHeaders),
		headerrequest.StringSliceProviderFunc(c.headers.GroupHeaders),
		headerrequest.StringSliceProviderFunc(c.headers.ExtraHeaderPrefixes))
}

var (
	errNoCertificates = apierrors.NewUnauthorized(
		"client certificates do not pass through this proxy: use a bearer token, or start the proxy with --impersonate")
	errNoAuthorities = apierrors.NewServiceUnavailable(
		"the proxy does not know the authorities of client certificates: it has not read the ConfigMap kube-system/" +
			Authorities + " yet, or may not read it")
	errUnauthorized = apierrors.NewUnauthorized("Unauthorized") // as the server says it
)

// user returns the user of a request with a certificate, or the error to answer. As at the server, a valid certificate
// without a name proves nobody, and is no error: then both are nil.
func (c *certificates) user(q *http.Request) (user.Info, error) {
	switch {
	case c == nil:
		return nil, errNoCertificates
	case !c.known():
		return nil, errNoAuthorities
	}
	response, ok, err := c.authenticate.AuthenticateRequest(q.Clone(q.Context())) // authenticators remove headers
	switch {
	case err != nil:
		klog.V(2).InfoS("A client certificate is not accepted", "err", err)
		return nil, errUnauthorized
	case !ok:
		return nil, nil
	}
	return response.User, CheckForwardable(response.User)
}

// again is user for an open request, whose certificate was valid: its authority may no longer be one.
func (c *certificates) again(q *http.Request) (user.Info, error) {
	known, err := c.user(q)
	switch {
	case errors.Is(err, errNoAuthorities):
		return nil, err
	case err != nil || known == nil:
		return nil, errUnknown
	}
	return known, nil
}

// certifiedKey is the key of the user that a request's certificate proves. It is not request.WithUser's, which
// handlers around the proxy may have set.
type certifiedKey struct{}

func WithCertified(ctx context.Context, proven user.Info) context.Context {
	return context.WithValue(ctx, certifiedKey{}, proven)
}

// CertifiedUser returns the user that the request's certificate proves, or nil.
func CertifiedUser(ctx context.Context) user.Info {
	u, _ := ctx.Value(certifiedKey{}).(user.Info)
	return u
}

// Identify returns a request without a certificate as it is, and one with a certificate with the user that it proves.
// As at the server, a certificate that proves none does not keep a request with a token from being judged by it.
// Without a token, identify returns the error to answer, and with one as well while it is not known whether the
// certificate is a front proxy's.
func (c *Control) Identify(q *http.Request) (*http.Request, error) {
	if q.TLS == nil || len(q.TLS.PeerCertificates) == 0 {
		return q, nil
	}
	known, err := c.certificates.user(q)
	switch {
	case err != nil && (!hasToken(q) || errors.Is(err, errNoAuthorities)):
		return nil, err
	case err != nil || known == nil:
		return q, nil
	}
	return q.WithContext(WithCertified(q.Context(), known)), nil
}

// hasToken reports whether a request has a bearer token: a WebSocket's may be among its protocols.
func hasToken(q *http.Request) bool {
	if q.Header.Get("Authorization") != "" {
		return true
	}
	for _, protocols := range q.Header.Values("Sec-WebSocket-Protocol") {
		if strings.Contains(protocols, "base64url.bearer.authorization.k8s.io.") {
			return true
		}
	}
	return false
}
