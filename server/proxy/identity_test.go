package proxy

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
)

// reviewing answers TokenReviews, as kube-apiserver words them.
type reviewing struct {
	refuses, fails atomic.Bool  // fails breaks connections
	status         atomic.Int64 // if not zero, the answer to all requests
}

func (r *reviewing) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(q.Body).Decode(&review); err != nil || r.fails.Load() {
		panic(http.ErrAbortHandler)
	}
	if status := r.status.Load(); status != 0 {
		w.Header().Set("Retry-After", "1") // as a server that answers 429
		w.WriteHeader(int(status))
		return
	}
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: true,
		User: authenticationv1.UserInfo{Username: "ada", Groups: []string{"g"}}}
	if r.refuses.Load() {
		review.Status = authenticationv1.TokenReviewStatus{
			Error: "[invalid bearer token, service account token has been invalidated]"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(&review)
}

// answersToReviews are answers of a server that decides nothing, and whether the last review counts then. A gateway
// words an outage as 502, 503 or 504.
var answersToReviews = map[int]bool{
	http.StatusBadGateway: true, http.StatusServiceUnavailable: true, http.StatusGatewayTimeout: true,
	http.StatusBadRequest: false, http.StatusUnauthorized: false, http.StatusForbidden: false, http.StatusNotFound: false,
	http.StatusTooManyRequests: false, http.StatusInternalServerError: false,
}

// The last review of the proxy itself counts as that of a token does.
func TestRememberedIdentityOfTheProxy(t *testing.T) {
	answers := &reviewing{}
	server := httptest.NewServer(answers)
	defer server.Close()
	client, err := authenticationclient.NewForConfig(&rest.Config{Host: server.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	for status, known := range answersToReviews {
		own, err := newOwnIdentity("secret", &rest.Config{Host: server.URL}, client, nil)
		if err != nil {
			t.Fatal(err)
		}
		own.last.Store(&ownReview{known: &user.DefaultInfo{Name: "ada"}, reviewed: time.Now().Add(-tokenKnownFor)})
		answers.status.Store(int64(status))
		for range 2 { // the second time, the failure is remembered
			if caller, ok := own.user(t.Context()); ok != known || ok && caller.GetName() != "ada" {
				t.Errorf("%d: %v, %v", status, caller, ok)
			}
		}
	}
}

// The last review of a token counts while the server does not answer. A refusal is an answer.
func TestRememberedTokens(t *testing.T) {
	t.Parallel()
	answers := &reviewing{}
	server := httptest.NewServer(answers)
	defer server.Close()
	client, err := authenticationclient.NewForConfig(&rest.Config{Host: server.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	tokens := newTokens(client, nil)
	expect := func(want, wantErr bool) {
		t.Helper()
		if last, found := tokens.known.Get(sha256.Sum256([]byte("token"))); found { // it is asked about again
			known := last.(reviewedToken)
			known.until = time.Time{}
			tokens.known.Add(sha256.Sum256([]byte("token")), known, outageFor)
		}
		known, err := tokens.again(t.Context(), "token", "")
		if ok := err == nil; ok != want || (err != nil && !errors.Is(err, errUnknown)) != wantErr || ok &&
			known.GetName() != "ada" {
			t.Errorf("%v, %v; want %v, an error: %v", known, err, want, wantErr)
		}
	}
	answers.fails.Store(true)
	expect(false, true)
	answers.fails.Store(false)
	expect(true, false)
	answers.fails.Store(true)
	expect(true, false)
	answers.fails.Store(false)
	for status, known := range answersToReviews {
		answers.status.Store(int64(status))
		expect(known, !known)
	}
	answers.status.Store(0)
	answers.refuses.Store(true)
	expect(false, false)
	answers.fails.Store(true)
	expect(false, true)
}

// A client with the proxy's own token acts as the user that the proxy was started for, and as no other one.
func TestOwnTokenImpersonates(t *testing.T) {
	forwarded := atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { forwarded.Add(1) }))
	defer server.Close()
	for _, as := range []string{"", "viewer"} {
		own, err := newOwnIdentity("secret", &rest.Config{Host: server.URL,
			Impersonate: rest.ImpersonationConfig{UserName: as}},
			authenticationclient.NewForConfigOrDie(&rest.Config{Host: server.URL}), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, header := range []string{"Impersonate-User", "Impersonate-Uid", "Impersonate-Extra-Scopes", "Accept"} {
			before := forwarded.Load()
			q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil)
			q.Header.Set("Authorization", "Bearer secret")
			q.Header.Set(header, "other")
			w := httptest.NewRecorder()
			own.forward(w, q)
			want := as != "" && header != "Accept"
			if refused := w.Code == http.StatusForbidden; refused != want || (forwarded.Load() == before) != want {
				t.Errorf("--as %q, %s: %d %s", as, header, w.Code, w.Body)
			}
		}
	}
}

// A client without any right can send headers of a megabyte. What is counted by user agent does not keep them.
func TestClientsKeepNoHeaders(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	c := &clients{all: map[string]*clientUse{}}
	before := heap()
	for i := range 100 {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		q.Header.Set("User-Agent", string(rune('a'+i%26))+strings.Repeat(string(rune('a'+i/26)), 900_000))
		c.of(q, true)
	}
	if after := heap(); len(c.all) != 100 || after > before+45<<20 { // half of what the headers have
		t.Errorf("%d clients, %d bytes more", len(c.all), after-before)
	}
	runtime.KeepAlive(c)
}

// A server that was restored from a backup, or is a replica that is behind, is not asked to confirm states that it does
// not have.
func TestNewestBelowDelivered(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9000"},"items":[]}`))
	}))
	defer server.Close()
	s, err := newSource(&rest.Config{Host: server.URL}, nil, schema.GroupVersionResource{Version: "v1",
		Resource: "configmaps"}, verbatim.NewFormat(verbatim.Layout{}, verbatim.Representation{Encoding: verbatim.JSON{}}),
		nil, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	for delivered, want := range map[keepwatch.Revision]bool{0: true, 8999: true, 9000: true, 9001: false} {
		s.open = nil
		if delivered > 0 {
			s.open = &openWatch{source: s, at: delivered, closed: true}
		}
		newest, err := s.Newest(t.Context())
		if (err == nil) != want || want && newest != 9000 {
			t.Errorf("a watch at %d: %d, %v", delivered, newest, err)
		}
	}
}

// Clients that are not authenticated cannot use up the user agents that are counted each by itself.
func TestClientsAreAuthenticated(t *testing.T) {
	t.Parallel()
	reviewed := &reviewing{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, "/tokenreviews") {
			reviewed.ServeHTTP(w, q)
		}
	}))
	defer server.Close()
	p, err := New(Config{Server: &rest.Config{Host: server.URL,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}})
	if err != nil {
		t.Fatal(err)
	}
	send := func(agent, method, token string) {
		q := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/pods", nil)
		q.Header.Set("User-Agent", agent)
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		p.ServeHTTP(httptest.NewRecorder(), q)
	}
	for i := range maxClients {
		send(fmt.Sprint("made-up-", i), http.MethodGet, "")
		send(fmt.Sprint("another-", i), http.MethodPost, "wrong")
	}
	send("kubelet/v1", http.MethodGet, "token")
	send("kubelet/v1", http.MethodPost, "token")
	known := map[string]ClientStatus{}
	for _, c := range p.clients.heaviest() {
		known[c.UserAgent] = c
	}
	if len(known) != 2 || known["kubelet/v1"].Requests != 2 || known["kubelet/v1"].Forwarded != 2 ||
		known[unknownClients].Requests != 2*maxClients || known[unknownClients].Forwarded != 2*maxClients {
		t.Errorf("%+v", known)
	}
}

// A caller is known until its token expires, and as long as the server knows the token.
func TestCallersAreAskedAgain(t *testing.T) {
	reviewed := &reviewing{}
	server := httptest.NewServer(reviewed)
	defer server.Close()
	p, err := New(Config{Server: &rest.Config{Host: server.URL,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}})
	if err != nil {
		t.Fatal(err)
	}
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil)
	q.Header.Set("Authorization", "bearer e30."+base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`,
		expires.Unix()))+".c2ln")
	by, err := p.caller(q)
	if err != nil || by.GetName() != "ada" || !by.expires.Equal(expires.Add(expiryLeeway)) {
		t.Fatalf("%+v, %v", by, err)
	}
	p.tokens.known.RemoveAll(func(any) bool { return true }) // its time is over
	reviewed.refuses.Store(true)
	for range 2 {
		if known, err := by.again(t.Context()); !errors.Is(err, errUnknown) {
			t.Errorf("%v, %v", known, err)
		}
	}
	reviewed.refuses.Store(false)
	// a server that starts may have refused it
	if known, err := by.again(t.Context()); err != nil || known.GetName() != "ada" {
		t.Errorf("%v, %v", known, err)
	}
	for _, header := range []string{"", "Basic YTpi", "Bearer", "Bearer  token"} {
		q.Header.Set("Authorization", header)
		if by, err := p.caller(q); !errors.Is(err, errUnknown) {
			t.Errorf("%q: %v, %v", header, by, err)
		}
	}
}

// A watch of a caller whose token has expired by the proxy's clock, and which the server accepts, stays open: the
// clocks differ. Without that it would end at once, and so would each that follows it.
func TestTheServersClockDecidesWhetherATokenHasExpired(t *testing.T) {
	server := httptest.NewServer(&reviewing{})
	defer server.Close()
	p, err := New(Config{Server: &rest.Config{Host: server.URL,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}})
	if err != nil {
		t.Fatal(err)
	}
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?watch=1", nil)
	expired := fmt.Appendf(nil, `{"exp":%d}`, time.Now().Add(-2*expiryLeeway).Unix())
	q.Header.Set("Authorization", "Bearer e30."+base64.RawURLEncoding.EncodeToString(expired)+".c2ln")
	by, err := p.caller(q)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := p.permissions.guard(t.Context(), by, asks("ada", "pods"), 0)
	defer end()
	if ctx.Err() != nil {
		t.Errorf("it ends at once: the token expires at %v", by.expires)
	}
}
