package access

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// client-go reports errors one by one, at the clock's pace: that of one test's bubble is not that of the next one's.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// newBundle returns an authority.
func newBundle() string {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// authorities answers requests for the ConfigMap of the authorities. Each part of a certificates lists it once: first
// those of the two authorities, as it is read alone only then. One of these two lists is answered at once, and all
// others once all is closed.
type authorities struct {
	configMap corev1.ConfigMap
	refusal   atomic.Pointer[refusal]
	answered  int64 // the number of the list
	lists     atomic.Int64
	both, all chan struct{} // both: the lists of the two authorities have come
}

// refusal is the answer to each request for the ConfigMap while it cannot be read.
type refusal struct {
	code int
	body string
}

func forbidden() *refusal {
	return &refusal{http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`}
}

func (s *authorities) RoundTrip(q *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Request: q}
	if r := s.refusal.Load(); r != nil {
		answer.StatusCode, answer.Body = r.code, io.NopCloser(strings.NewReader(r.body))
		return answer, nil
	}
	values := q.URL.Query()
	var body any = &s.configMap
	switch {
	case values.Has("sendInitialEvents"):
		answer.StatusCode = http.StatusUnprocessableEntity
		body = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Reason: metav1.StatusReasonInvalid,
			Code: http.StatusUnprocessableEntity}
	case values.Has("watch"):
		<-q.Context().Done()
		return nil, q.Context().Err()
	case strings.HasSuffix(q.URL.Path, "/configmaps"):
		number := s.lists.Add(1)
		if number == 2 {
			close(s.both)
		}
		if number != s.answered {
			select {
			case <-s.all:
			case <-q.Context().Done():
				return nil, q.Context().Err()
			}
		}
		body = &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.ConfigMap{s.configMap}}
	default:
		select {
		case <-s.both:
		case <-q.Context().Done():
			return nil, q.Context().Err()
		}
	}
	encoded, err := json.Marshal(body)
	answer.Body = io.NopCloser(strings.NewReader(string(encoded)))
	return answer, err
}

// A request with a certificate waits for all authorities, also if it has a token: the certificate may be that of a
// front proxy, whose headers name another user. What the server does not publish is not waited for.
func TestAllAuthoritiesAreKnown(t *testing.T) {
	bundle := newBundle()
	both := map[string]string{clientsKey: bundle, frontProxiesKey: bundle, "requestheader-username-headers": `["X-User"]`}
	for name, data := range map[string]map[string]string{"both": both, "clients": {clientsKey: bundle},
		"front proxies": {frontProxiesKey: bundle, "requestheader-username-headers": `["X-User"]`}, "none": {}} {
		for answered := range int64(2) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { authoritiesOf(t, data, answered+1) })
			})
		}
	}
}

// follow returns a control that follows the authorities until the test ends, and reports whether a request with a
// certificate and a token waits for them.
func (s *authorities) follow(t *testing.T) (c *Control, unknown func() bool) {
	config := &rest.Config{Host: "http://server", Transport: s, QPS: -1}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = New(config, client, Options{Certificates: true}); err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{})
	go func() { c.certificates.run(t.Context()); close(running) }()
	t.Cleanup(func() { <-running })
	return c, func() bool {
		_, err := c.Identify(certifiedWithToken())
		return errors.Is(err, errNoAuthorities)
	}
}

func certifiedWithToken() *http.Request {
	q := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	q.Header.Set("Authorization", "Bearer token")
	q.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	return q
}

func newAuthorities(data map[string]string, answered int64) *authorities {
	return &authorities{answered: answered, both: make(chan struct{}), all: make(chan struct{}),
		configMap: corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: Authorities, ResourceVersion: "7"}, Data: data}}
}

func authoritiesOf(t *testing.T, data map[string]string, answered int64) {
	server := newAuthorities(data, answered)
	server.refusal.Store(forbidden())
	c, unknown := server.follow(t)
	if !unknown() {
		t.Error("the ConfigMap may not be read, and the authorities are known")
	}
	await.True(t, "the proxy is ready although it may not read the authorities", c.certificates.answered)
	server.refusal.Store(nil)
	if len(data) == 3 {
		await.True(t, "one of both is read", func() bool {
			_, clients := c.certificates.clients.VerifyOptions()
			_, frontProxies := c.certificates.frontProxies.VerifyOptions()
			return c.certificates.published.Load() != nil && clients != frontProxies
		})
		if !unknown() {
			t.Error("one of two authorities is read, and the authorities are known")
		}
		if c.certificates.answered() {
			t.Error("one of two authorities is read, and the proxy is ready")
		}
	}
	close(server.all)
	await.True(t, "the authorities are known", func() bool { return !unknown() && c.certificates.answered() })
}

// A server without the ConfigMap has no authorities: certificates prove nobody to it, and requests are judged by their
// tokens. It may publish them later. A 404 of a load balancer does not say that there are none.
func TestNoAuthorities(t *testing.T) {
	t.Parallel()
	bundle := newBundle()
	synctest.Test(t, func(t *testing.T) { noAuthorities(t, bundle) })
}

func noAuthorities(t *testing.T, bundle string) {
	server := newAuthorities(map[string]string{clientsKey: bundle, frontProxiesKey: bundle}, 1)
	server.refusal.Store(&refusal{http.StatusNotFound, "default backend - 404"})
	c, unknown := server.follow(t)
	await.True(t, "the proxy is ready although a load balancer answers", c.certificates.answered)
	if !unknown() {
		t.Error("a load balancer answers, and the authorities are known")
	}

	server.refusal.Store(&refusal{http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound",` +
		`"details":{"name":"extension-apiserver-authentication","kind":"configmaps"},"code":404}`})
	await.True(t, "the server has no authorities", func() bool { return !unknown() && c.certificates.answered() })
	q, err := c.Identify(certifiedWithToken())
	if err != nil || CertifiedUser(q.Context()) != nil {
		t.Errorf("a certificate proves %v, %v to a server without authorities", CertifiedUser(q.Context()), err)
	}
	q = certifiedWithToken()
	q.Header.Del("Authorization")
	if _, err := c.Identify(q); err != nil {
		t.Errorf("a request without a token: %v", err)
	}

	server.refusal.Store(nil)
	await.True(t, "a part of the authorities is published, and waited for", unknown)
	close(server.all)
	await.True(t, "all published authorities are known", func() bool {
		_, clients := c.certificates.clients.VerifyOptions()
		_, frontProxies := c.certificates.frontProxies.VerifyOptions()
		return clients && frontProxies && !unknown()
	})
}
