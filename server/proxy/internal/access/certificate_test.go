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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// authorities answers requests for the ConfigMap of the authorities. Each part of a certificates lists it once: first
// those of the two authorities, as it is read alone only then. One of these two lists is answered at once, and all
// others once all is closed.
type authorities struct {
	configMap corev1.ConfigMap
	readable  atomic.Bool
	answered  int64 // the number of the list
	lists     atomic.Int64
	both, all chan struct{} // both: the lists of the two authorities have come
}

func (s *authorities) RoundTrip(q *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Request: q}
	values := q.URL.Query()
	var body any = &s.configMap
	switch {
	case !s.readable.Load():
		answer.StatusCode = http.StatusForbidden
		body = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Reason: metav1.StatusReasonForbidden,
			Code: http.StatusForbidden}
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
	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()
	bundle := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate().Raw}))
	both := map[string]string{clientsKey: bundle, frontProxiesKey: bundle, "requestheader-username-headers": `["X-User"]`}
	for name, data := range map[string]map[string]string{"both": both, "clients": {clientsKey: bundle},
		"front proxies": {frontProxiesKey: bundle, "requestheader-username-headers": `["X-User"]`}, "none": {}} {
		for answered := range int64(2) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				authoritiesOf(t, data, answered+1)
			})
		}
	}
}

func authoritiesOf(t *testing.T, data map[string]string, answered int64) {
	server := &authorities{answered: answered, both: make(chan struct{}), all: make(chan struct{}),
		configMap: corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: Authorities, ResourceVersion: "7"}, Data: data}}
	config := &rest.Config{Host: "http://server", Transport: server, QPS: -1}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(config, client, Options{Certificates: true})
	if err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{})
	go func() { c.certificates.run(t.Context()); close(running) }()
	t.Cleanup(func() { <-running })
	q := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	q.Header.Set("Authorization", "Bearer token")
	q.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	unknown := func() bool {
		_, err := c.Identify(q)
		return errors.Is(err, errNoAuthorities)
	}
	if !unknown() {
		t.Error("the ConfigMap may not be read, and the authorities are known")
	}
	await.True(t, "the proxy is ready although it may not read the authorities", c.certificates.answered)
	server.readable.Store(true)
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
