package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// auditLog is an audit log in memory.
type auditLog struct {
	mu     sync.Mutex
	events []string
	fails  bool
	last   string // the ID of the last one
}

func (*auditLog) Run(<-chan struct{}) error { return nil }
func (*auditLog) Shutdown()                 {}
func (*auditLog) String() string            { return "memory" }

func (l *auditLog) ProcessEvents(events ...*auditinternal.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		l.last = string(e.AuditID)
		l.events = append(l.events, fmt.Sprintf("%s %s %s %s %s", e.Stage, e.Level, e.Verb, e.RequestURI,
			e.Annotations[decisionAnnotation]))
	}
	return !l.fails
}

// take returns the events since the last call, when there are enough.
func (l *auditLog) take(t *testing.T, enough int) (events []string) {
	t.Helper()
	for deadline := time.Now().Add(await.Deadline); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		if events = l.events; len(events) >= enough || time.Now().After(deadline) {
			l.events = nil
			l.mu.Unlock()
			return events
		}
		l.mu.Unlock()
	}
}

// What the proxy answers itself is in its audit log, without objects; what it forwards is not.
func TestAudit(t *testing.T) {
	log := &auditLog{}
	r := newCrowdRig(t, func(c *Config) {
		c.Audit = &Audit{log, policy.NewPolicyRuleEvaluator(&auditinternal.Policy{Rules: []auditinternal.PolicyRule{
			{Level: auditinternal.LevelNone, NonResourceURLs: []string{"/keepwatch/"}},
			{Level: auditinternal.LevelMetadata, NonResourceURLs: []string{"*"}},
			{Level: auditinternal.LevelRequestResponse, OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived}},
		}})}
	})
	get := func(path string, code int) {
		t.Helper()
		answer, err := r.get(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != code {
			t.Fatalf("%s: %s, %v", path, answer.Status, err)
		}
		if ids := answer.Header.Values("Audit-Id"); len(ids) > 1 {
			t.Errorf("%s has the Audit-Ids %q", path, ids)
		}
	}
	const list = "/api/v1/configmaps?resourceVersion=0"
	for deadline := time.Now().Add(await.Deadline); !r.cached() && time.Now().Before(deadline); {
		get(list, http.StatusOK)
	}
	get("/version", http.StatusOK) // on the same connection: all before it is recorded
	log.take(t, 0)
	get(list, http.StatusOK)
	get("/api/v1/configmaps", http.StatusOK) // of a small collection
	get("/version", http.StatusOK)
	get("/keepwatch/", http.StatusOK)
	get("/metrics", http.StatusOK)
	want := []string{
		"ResponseComplete Request list " + list + " allow",
		"RequestReceived Metadata get /metrics ", "ResponseComplete Metadata get /metrics allow",
	}
	if got := log.take(t, len(want)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	const watch = "/api/v1/configmaps?resourceVersion=0&watch=1"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer, err := r.get(ctx, watch)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := log.take(t, 1); !slices.Equal(got, []string{"ResponseStarted Request watch " + watch + " allow"}) {
		t.Errorf("%q when a watch begins", got)
	}
	cancel()
	if got := log.take(t, 1); !slices.Equal(got, []string{"ResponseComplete Request watch " + watch + " allow"}) {
		t.Errorf("%q when a watch ends", got)
	}
	log.mu.Lock()
	log.fails = true
	log.mu.Unlock()
	get("/metrics", http.StatusInternalServerError) // it is not recorded before it is answered
}

// Each answer has one Audit-ID, as each of an API server: the request's, if it has one. It is that of the event.
func TestAuditIDs(t *testing.T) {
	log := &auditLog{}
	r := newCrowdRig(t, func(c *Config) {
		c.Audit = &Audit{log, policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
			Rules:      []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata}},
			OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived}})}
	})
	without := newCrowdRig(t, func(*Config) {})
	await.True(t, "the resource is cached", func() bool { return r.cached() && without.cached() })
	down, err := New(Config{Server: &rest.Config{Host: "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, path, token string
		by                http.Handler
		code              int
		recorded          bool
	}{
		{"from memory", "/api/v1/configmaps?resourceVersion=0", "own", r.proxy, http.StatusOK, true},
		{"from memory, not recorded", "/api/v1/configmaps?resourceVersion=0", "own", without.proxy, http.StatusOK, false},
		{"forwarded", "/version", "own", r.proxy, http.StatusOK, false},
		{"an endpoint", "/metrics", "own", r.proxy, http.StatusOK, true},
		{"health", "/livez", "", r.proxy, http.StatusOK, false},
		{"refused", "/metrics", "", r.proxy, http.StatusUnauthorized, false},
		{"not answered", "/version", "", down, http.StatusServiceUnavailable, false},
	} {
		for _, sent := range []string{"", "of-the-client"} {
			log.take(t, 0)
			q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil)
			if c.token != "" {
				q.Header.Set("Authorization", "Bearer "+c.token)
			}
			if sent != "" {
				q.Header.Set("Audit-ID", sent)
			}
			w := httptest.NewRecorder()
			c.by.ServeHTTP(w, q)
			ids := w.Result().Header.Values("Audit-ID")
			if w.Code != c.code || len(ids) != 1 || sent != "" && ids[0] != sent {
				t.Errorf("%s, asked as %q: %d with the Audit-IDs %q", c.what, sent, w.Code, ids)
				continue
			}
			if events := log.take(t, 0); c.recorded && (len(events) != 1 || log.last != ids[0]) {
				t.Errorf("%s: %q, and the event %q", c.what, ids, log.last)
			}
		}
	}
}
