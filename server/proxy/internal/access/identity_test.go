package access

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
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

// The last review of the proxy itself counts as that of a token does. A refusal to review it is final.
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
		own := newOwnIdentity("secret", client, nil)
		own.last.Store(&ownReview{known: &user.DefaultInfo{Name: "ada"}, reviewed: time.Now().Add(-tokenKnownFor)})
		answers.status.Store(int64(status))
		for range 2 { // the second time, the failure is remembered
			if caller, ok := own.user(t.Context()); ok != known || ok && caller.GetName() != "ada" {
				t.Errorf("%d: %v, %v", status, caller, ok)
			}
		}
		passes := status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
		if _, err := own.again(t.Context()); !known && IsUndecided(err) != passes {
			t.Errorf("%d: undecided: %v", status, err)
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

// controlOf returns a control that asks a server.
func controlOf(t *testing.T, server *rest.Config) *Control {
	t.Helper()
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(server, client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A caller is known until its token expires, and as long as the server knows the token.
func TestCallersAreAskedAgain(t *testing.T) {
	reviewed := &reviewing{}
	server := httptest.NewServer(reviewed)
	defer server.Close()
	c := controlOf(t, &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil)
	q.Header.Set("Authorization", "bearer e30."+base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`,
		expires.Unix()))+".c2ln")
	by, err := c.Caller(q)
	if err != nil || by.GetName() != "ada" || !by.expires.Equal(expires.Add(expiryLeeway)) {
		t.Fatalf("%+v, %v", by, err)
	}
	c.tokens.known.RemoveAll(func(any) bool { return true }) // its time is over
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
		if by, err := c.Caller(q); !errors.Is(err, errUnknown) {
			t.Errorf("%q: %v, %v", header, by, err)
		}
	}
}

// A watch of a caller whose token has expired by the proxy's clock, and which the server accepts, stays open: the
// clocks differ. Without that it would end at once, and so would each that follows it.
func TestTheServersClockDecidesWhetherATokenHasExpired(t *testing.T) {
	server := httptest.NewServer(&reviewing{})
	defer server.Close()
	c := controlOf(t, &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?watch=1", nil)
	expired := fmt.Appendf(nil, `{"exp":%d}`, time.Now().Add(-2*expiryLeeway).Unix())
	q.Header.Set("Authorization", "Bearer e30."+base64.RawURLEncoding.EncodeToString(expired)+".c2ln")
	by, err := c.Caller(q)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := c.permissions.guard(t.Context(), by, asks("ada", "pods"), 0)
	defer end()
	if ctx.Err() != nil {
		t.Errorf("it ends at once: the token expires at %v", by.expires)
	}
}

// The scheme of the proxy's own token may be in any case, as at API servers. A second header could name somebody else.
func TestOwnToken(t *testing.T) {
	own := &ownIdentity{token: "secret"}
	for name, test := range map[string]struct {
		headers []string
		want    bool
	}{
		"as kubectl":     {[]string{"Bearer secret"}, true},
		"another case":   {[]string{"bearer secret"}, true},
		"another token":  {[]string{"Bearer secret2"}, false},
		"another scheme": {[]string{"Basic secret"}, false},
		"no scheme":      {[]string{"secret"}, false},
		"two headers":    {[]string{"Bearer secret", "Bearer client's"}, false},
		"none":           {nil, false},
	} {
		q := &http.Request{Header: http.Header{"Authorization": test.headers}}
		if got := own.sent(q); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if (*ownIdentity)(nil).sent(&http.Request{Header: http.Header{"Authorization": {"Bearer "}}}) {
		t.Error("a proxy without a token of its own recognizes one")
	}
}
