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
		event := fmt.Sprintf("%s %s %s %s %s", e.Stage, e.Level, e.Verb, e.RequestURI, e.Annotations[decisionAnnotation])
		if view, is := e.Annotations[viewAnnotation]; is {
			event += " " + view
		}
		l.events = append(l.events, event)
	}
	return !l.fails
}

// take returns the events since the last call.
func (l *auditLog) take() (events []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	events, l.events = l.events, nil
	return events
}

// What the proxy answers itself is in its audit log, without objects; what it forwards is not.
func TestAudit(t *testing.T) {
	t.Parallel()
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
	// recorded returns the events of requests whose answers are complete: a later one has come on the same connection.
	recorded := func() []string {
		t.Helper()
		get("/version", http.StatusOK)
		return log.take()
	}
	// Memory answers unless the resource is not cached yet, or the server does not decide: it is busy with its start.
	const list = "/api/v1/configmaps?resourceVersion=0"
	want := []string{"ResponseComplete Request list " + list + " allow"}
	await.State(t, "a list from memory is recorded", func() (bool, string) {
		get(list, http.StatusOK)
		got := recorded()
		return slices.Equal(got, want), fmt.Sprintf("%q, want %q", got, want)
	})
	get("/api/v1/configmaps", http.StatusOK) // of a small collection
	get("/keepwatch/", http.StatusOK)
	get("/metrics", http.StatusOK)
	want = []string{"RequestReceived Metadata get /metrics ", "ResponseComplete Metadata get /metrics allow"}
	if got := recorded(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	const watch = "/api/v1/configmaps?resourceVersion=0&watch=1"
	want = []string{"ResponseStarted Request watch " + watch + " allow"}
	var end func()
	await.State(t, "the beginning of a watch from memory is recorded", func() (bool, string) {
		ctx, cancel := context.WithCancel(t.Context())
		answer, err := r.get(ctx, watch)
		if err != nil {
			t.Fatal(err)
		}
		end = func() { cancel(); answer.Body.Close() }
		got := log.take()
		is := slices.Equal(got, want)
		if !is {
			end()
		}
		return is, fmt.Sprintf("%q, want %q", got, want)
	})
	end()
	want = []string{"ResponseComplete Request watch " + watch + " allow"}
	var got []string
	await.State(t, "the end of a watch is recorded", func() (bool, string) {
		got = append(got, log.take()...)
		return slices.Equal(got, want), fmt.Sprintf("%q, want %q", got, want)
	})
	log.mu.Lock()
	log.fails = true
	log.mu.Unlock()
	get("/metrics", http.StatusInternalServerError) // it is not recorded before it is answered
}

// The event of a personal view says how many namespaces were allowed, and has the URL that the client has sent.
func TestAuditOfPersonalViews(t *testing.T) {
	t.Parallel()
	log := &auditLog{}
	r := newPersonalRig(t, 1, func(c *Config) {
		c.Audit = &Audit{log, policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
			Rules:      []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata}},
			OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived}})}
	})
	ada := r.user("ada")
	r.grant("ada", "a")
	r.sees(ada, 1)
	view := r.get(0, ada, anyState).header.Get(PersonalHeader)
	for path, view := range map[string]string{
		configMaps: " " + view, anyState: " " + view, anyState + "&pretty=true": " " + view,
		"/api/v1/namespaces/a/configmaps?resourceVersion=0&": "", "/api/v1/namespaces/a/configmaps?resourceVersion=0": "",
	} {
		want := "ResponseComplete Metadata list " + path + " allow" + view
		await.State(t, "a list is recorded", func() (bool, string) {
			if got := r.get(0, ada, path); got.code != http.StatusOK {
				t.Fatalf("%s: %d", path, got.code)
			}
			got := log.take()
			return slices.Contains(got, want), fmt.Sprintf("%q, want %q", got, want)
		})
	}
	const watch = configMaps + "?watch=1&resourceVersion=0"
	_, events := r.watch(0, ada, "resourceVersion=0")
	r.expect(events, "ADDED", mapsOf("a")...)
	want := "ResponseStarted Metadata watch " + watch + " allow " + view
	if got := log.take(); !slices.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Each answer has one Audit-ID, as each of an API server: the request's, if it has one. It is that of the event.
func TestAuditIDs(t *testing.T) {
	t.Parallel()
	log := &auditLog{}
	r := newCrowdRig(t, func(c *Config) {
		c.Audit = &Audit{log, policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
			Rules:      []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata}},
			OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived}})}
	})
	without := newCrowdRig(t, func(*Config) {})
	const list = "/api/v1/configmaps?resourceVersion=0"
	ask := func(by http.Handler, path, token, id string) *httptest.ResponseRecorder {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		if id != "" {
			q.Header.Set("Audit-ID", id)
		}
		w := httptest.NewRecorder()
		by.ServeHTTP(w, q)
		return w
	}
	await.True(t, "memory answers", func() bool {
		ask(r.proxy, list, "own", "")
		return len(log.take()) == 1 && without.cached()
	})
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
		{"from memory", list, "own", r.proxy, http.StatusOK, true},
		{"from memory, not recorded", list, "own", without.proxy, http.StatusOK, false},
		{"forwarded", "/version", "own", r.proxy, http.StatusOK, false},
		{"an endpoint", "/metrics", "own", r.proxy, http.StatusOK, true},
		{"health", "/livez", "", r.proxy, http.StatusOK, false},
		{"refused", "/metrics", "", r.proxy, http.StatusUnauthorized, false},
		{"not answered", "/version", "", down, http.StatusServiceUnavailable, false},
	} {
		for _, sent := range []string{"", "of-the-client"} {
			log.take()
			w := ask(c.by, c.path, c.token, sent)
			ids := w.Result().Header.Values("Audit-ID")
			if w.Code != c.code || len(ids) != 1 || sent != "" && ids[0] != sent {
				t.Errorf("%s, asked as %q: %d with the Audit-IDs %q", c.what, sent, w.Code, ids)
				continue
			}
			if events := log.take(); c.recorded && (len(events) != 1 || log.last != ids[0]) {
				t.Errorf("%s: %q, and the event %q", c.what, ids, log.last)
			}
		}
	}
}
