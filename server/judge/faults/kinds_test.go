package faults

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// parsePlan returns a plan of YAML rules.
func parsePlan(t *testing.T, http1 bool, rules string) Plan {
	t.Helper()
	plan, err := ParsePlan([]byte("rules:\n" + rules))
	if err != nil {
		t.Fatal(err)
	}
	plan.HTTP1 = http1
	return plan
}

const (
	bookmarkFrame   = `{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"5"}}}` + "\n"
	initialEndFrame = `{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"6","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"
)

// modified is an event with a revision.
func modified(revision int) string {
	return fmt.Sprintf(`{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"name":"a","resourceVersion":"%d"}}}`+"\n",
		revision)
}

func TestFrameFaults(t *testing.T) {
	a, b, c := modified(1), modified(2), modified(3)
	early := func(revision string) string {
		return `{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"` + revision + `"}}}` + "\n"
	}
	unknown := func(event string) string { return strings.Replace(event, "MODIFIED", "UNKNOWN", 1) }
	size := 1000
	padded := strings.TrimSuffix(b, "}\n") + strings.Repeat(" ", size-len(b)+1) + "}\n"
	tests := []struct{ rule, sent, want string }{
		{"{fault: skip, after: {events: 1}}", a + b + c, a + c},
		{"{fault: skip}", bookmarkFrame + a + b, bookmarkFrame + b},
		{"{fault: reorder}", a + b + c, b + a + c},
		{"{fault: reorder}", a + bookmarkFrame + b + c, a + bookmarkFrame + c + b},
		{"{fault: reorder, after: {events: 2}}", a + b + c, a + b + c},
		{"{fault: oversized, after: {events: 1}, size: 1000}", a + b + c, a + padded + c},
		{"{fault: unknown-type}", a + b, unknown(a) + a + b},
		{"{fault: early-bookmark, after: {events: 1}}", a + b, a + early("2") + b},
		{"{fault: late-bookmarks}", bookmarkFrame + a + b + bookmarkFrame, a + bookmarkFrame + b + bookmarkFrame},
		{"{fault: no-bookmarks}", bookmarkFrame + a + initialEndFrame + bookmarkFrame + b, a + initialEndFrame + b},
		{"{fault: repeat, after: {events: 2}}", a + b + c, a + b + b + c},
		{"{fault: end, after: {events: 2}}", a + b + c, a + b},
		{"{fault: skip}", "nonsense\n" + a + b, "nonsense\n" + b},
	}
	bothProtocols(t, func(t *testing.T, http1 bool) {
		for _, test := range tests {
			cluster, upstream := newCluster(t, 0)
			cluster.events <- test.sent
			close(cluster.events)
			p := New(t, upstream, parsePlan(t, http1, "- "+test.rule))
			_, body, err := newClient(t, p, http1).read(t, watchPods)
			if err != nil || canonical(body) != canonical(test.want) {
				t.Errorf("%s: got %v\n%s\nwant\n%s", test.rule, err, body, test.want)
			}
		}
	})
}

// canonical removes what encoders write for an empty object.
func canonical(frames string) string {
	return strings.ReplaceAll(frames, `,"creationTimestamp":null`, "")
}

func TestNoInitialEventsEnd(t *testing.T) {
	cluster, upstream := newCluster(t, 0)
	cluster.events <- modified(1) + initialEndFrame + modified(7)
	close(cluster.events)
	p := New(t, upstream, parsePlan(t, false, "- {fault: no-initial-events-end}"))
	c := newClient(t, p, false)
	if _, body, err := c.read(t, pods+"?watch=1&sendInitialEvents=true"); err != nil || body != modified(1)+modified(7) {
		t.Errorf("got %q, %v", body, err)
	}
}

func TestRequestFaults(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http1 bool) {
		_, upstream := newCluster(t, 0)
		p := New(t, upstream, parsePlan(t, http1, `
- {fault: refuse, match: {nth: [1]}}
- {fault: status, status: TooManyRequests, retryAfter: 7s, match: {nth: [1]}}
- {fault: status, status: ResourceVersionTooLarge, match: {nth: [1]}}
- {fault: delay, for: 50ms, match: {nth: [1]}}
- {fault: slow, rate: 200000, match: {nth: [1]}}
`))
		c := newClient(t, p, http1)
		if _, _, err := c.read(t, pods); err == nil {
			t.Error("not refused")
		}
		response, err := c.get(t.Context(), pods)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 429 || response.Header.Get("Retry-After") != "7" {
			t.Errorf("got %d, %v", response.StatusCode, response.Header)
		}
		code, body, err := c.read(t, pods)
		if code != 504 || !strings.Contains(body, string(metav1.CauseTypeResourceVersionTooLarge)) || err != nil {
			t.Errorf("got %d %q, %v", code, body, err)
		}
		for _, least := range []time.Duration{50 * time.Millisecond, 400 * time.Millisecond} {
			start := time.Now()
			code, body, err := c.read(t, pods)
			if code != 200 || len(body) < 100_000 || err != nil {
				t.Errorf("got %d, %d bytes, %v", code, len(body), err)
			}
			if took := time.Since(start); took < least {
				t.Errorf("answered after %s, want at least %s", took, least)
			}
		}
		var names []string
		for _, e := range p.Transcript() {
			for _, f := range e.Faults {
				names = append(names, f.Fault)
			}
		}
		want := []string{"refuse", "status 429 TooManyRequests", "status 504 Timeout", "delay", "slow"}
		if fmt.Sprint(names) != fmt.Sprint(want) {
			t.Errorf("transcript has %v, want %v", names, want)
		}
	})
}

func TestExpiredContinueToken(t *testing.T) {
	_, upstream := newCluster(t, 0)
	p := New(t, upstream, parsePlan(t, false, "- {fault: status, status: Expired, match: {verb: page}}"))
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":42,"start":"a/b\u0000"}`))
	code, body, err := newClient(t, p, false).read(t, pods+"?limit=5&continue="+token)
	var status metav1.Status
	if err != nil || code != 410 || json.Unmarshal([]byte(body), &status) != nil {
		t.Fatalf("got %d %q, %v", code, body, err)
	}
	text, err := base64.RawURLEncoding.DecodeString(status.Continue)
	var next struct {
		RV    int
		Start string
	}
	if err != nil || json.Unmarshal(text, &next) != nil || next.RV != -1 || next.Start != "a/b\x00" {
		t.Errorf("got the token %q, %v", text, err)
	}
}

// echo is a server that answers each request with its query.
func echo(t *testing.T) *rest.Config {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.RawQuery)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: certificatePEM(server.Certificate())}}
}

// TestSamePage checks that a request for a further page becomes one for the first page at the token's revision.
func TestSamePage(t *testing.T) {
	upstream := echo(t)
	plan, _, err := NamedPlan("same-page")
	if err != nil {
		t.Fatal(err)
	}
	p := New(t, upstream, plan)
	c := newClient(t, p, false)
	token := func(revision int) string {
		return "?limit=5&continue=" + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil,
			`{"v":"meta.k8s.io/v1","rv":%d,"start":"a/b\u0000"}`, revision))
	}
	for query, want := range map[string]string{
		"?limit=5":                "limit=5",
		token(42):                 "limit=5&resourceVersion=42&resourceVersionMatch=Exact",
		token(-1):                 token(-1)[1:], // of an inconsistent list: no revision has its first page
		"?limit=5&continue=other": "limit=5&continue=other",
	} {
		if _, body, err := c.read(t, pods+query); err != nil || body != want {
			t.Errorf("%s became %q, want %q; %v", query, body, want, err)
		}
	}
	if names := Report(p.Transcript())[0].Faults; names["same-page"] != 1 {
		t.Errorf("the report has %v", names)
	}
}

// TestFromScratch checks that a watch that resumes at a revision becomes one without.
func TestFromScratch(t *testing.T) {
	upstream := echo(t)
	plan, _, err := NamedPlan("replay-from-scratch")
	if err != nil {
		t.Fatal(err)
	}
	plan.Rules = plan.Rules[2:] // without those that end watches
	p := New(t, upstream, plan)
	c := newClient(t, p, false)
	for query, want := range map[string]string{
		"?watch=1&resourceVersion=7": "watch=1",
		"?watch=1&resourceVersion=0": "watch=1&resourceVersion=0",
		"?watch=1":                   "watch=1",
		"?watch=1&resourceVersion=7&sendInitialEvents=true": "watch=1&resourceVersion=7&sendInitialEvents=true",
		"?resourceVersion=7": "resourceVersion=7",
	} {
		if _, body, err := c.read(t, pods+query); err != nil || body != want {
			t.Errorf("%s became %q, want %q; %v", query, body, want, err)
		}
	}
	if names := Report(p.Transcript())[0].Faults; names["from-scratch"] != 1 {
		t.Errorf("the report has %v", names)
	}
}

func TestOutageAndExpiredCertificate(t *testing.T) {
	tests := []struct {
		rule string
		is   func(error) bool
	}{
		{"{fault: outage, for: 300ms}", func(err error) bool {
			return errors.Is(err, syscall.ECONNREFUSED)
		}},
		{"{fault: expired-certificate, for: 300ms}", func(err error) bool {
			invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
			return ok && invalid.Reason == x509.Expired
		}},
	}
	bothProtocols(t, func(t *testing.T, http1 bool) {
		for _, test := range tests {
			_, upstream := newCluster(t, 0)
			p := New(t, upstream, parsePlan(t, http1, "- "+test.rule))
			c := newClient(t, p, http1)
			if _, _, err := c.read(t, pods); err == nil {
				t.Errorf("%s: the request was answered", test.rule)
			}
			// Each request that arrives begins it again, however late the next one comes.
			await.State(t, test.rule+" is seen", func() (bool, string) {
				code, _, err := c.read(t, pods)
				return test.is(err), fmt.Sprint(code, err)
			})
			p.Calm()
			await.State(t, test.rule+" ends", func() (bool, string) {
				code, _, err := c.read(t, pods)
				return code == 200, fmt.Sprint(code, err)
			})
		}
	})
}

func TestFaultsInTime(t *testing.T) {
	for _, rule := range []string{"{fault: end, after: {idle: 100ms}}", "{fault: end, after: {time: 100ms}}"} {
		_, upstream := newCluster(t, 1)
		p := New(t, upstream, parsePlan(t, false, "- "+rule))
		start := time.Now()
		_, body, err := newClient(t, p, false).read(t, watchPods) // the event may be later than the end
		if err != nil || body != "" && body != added(1) {
			t.Errorf("%s: got %q, %v", rule, body, err)
		}
		if took := time.Since(start); took < 100*time.Millisecond {
			t.Errorf("%s: ended after %s", rule, took)
		}
	}
}

func TestStallIsOverInTime(t *testing.T) {
	for _, kind := range []string{"stall", "half-open"} {
		cluster, upstream := newCluster(t, 2)
		close(cluster.events)
		p := New(t, upstream, parsePlan(t, true, "- {fault: "+kind+", after: {events: 1}, for: 100ms}"))
		start := time.Now()
		if _, body, err := newClient(t, p, true).read(t, watchPods); err != nil || body != added(1)+added(2) {
			t.Errorf("%s: got %q, %v", kind, body, err)
		}
		if took := time.Since(start); took < 100*time.Millisecond {
			t.Errorf("%s: took %s", kind, took)
		}
	}
}

// past is a server whose revision rises with each request, and that says which revision a list requested.
func newPast(t *testing.T) *rest.Config {
	revision := 100
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := r.URL.Query().Get("resourceVersion")
		if r.URL.Query().Get("resourceVersionMatch") != "Exact" {
			revision++
			shown = fmt.Sprint(revision)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"metadata":{"resourceVersion":"%s"}}`, shown)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: certificatePEM(server.Certificate())}}
}

// TestPast relies on the proxy's own request before each list: the revisions 101, 102 and so on.
func TestPast(t *testing.T) {
	const old = `{"metadata":{"resourceVersion":"101"}}`
	tests := []struct {
		kind, query string
		code        int
		body        string // "" is any
	}{
		{"stale", "?resourceVersion=0", 200, old},
		{"stale", "?resourceVersion=50", 200, old},
		{"stale", "", 200, `{"metadata":{"resourceVersion":"104"}}`},
		{"stale", "?resourceVersion=103", 504, ""},
		{"stale", "?resourceVersion=103&resourceVersionMatch=Exact", 200, `{"metadata":{"resourceVersion":"103"}}`},
		{"rewind", "", 200, old},
		{"rewind", "?resourceVersion=103", 504, ""},
		{"rewind", "?watch=1&resourceVersion=103", 504, ""},
		{"rewind", "?watch=1&sendInitialEvents=true", 422, ""},
	}
	for _, test := range tests {
		p := New(t, newPast(t), parsePlan(t, false, "- {fault: "+test.kind+", lag: 1h}"))
		c := newClient(t, p, false)
		if _, body, err := c.read(t, pods); err != nil || !strings.Contains(body, "102") { // only one revision is known
			t.Fatalf("got %s, %v", body, err)
		}
		code, body, err := c.read(t, pods+test.query)
		if code != test.code || err != nil || test.body != "" && body != test.body {
			t.Errorf("%s %s: got %d %s, %v", test.kind, test.query, code, body, err)
		}
		if injected := len(p.Transcript()[1].Faults); (injected == 1) != (test.code != 200 || body == old) {
			t.Errorf("%s %s: %d faults in the transcript", test.kind, test.query, injected)
		}
	}
}

// TestOwnCredentials checks that only clients with the proxy's token use its credentials.
func TestOwnCredentials(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		_, _ = io.WriteString(w, user+":"+password)
	}))
	t.Cleanup(server.Close)
	p := New(t, &rest.Config{
		Host: server.URL, Username: "me", Password: "secret",
		TLSClientConfig: rest.TLSClientConfig{CAData: certificatePEM(server.Certificate())},
	}, Plan{})
	if code, body, err := newClient(t, p, false).read(t, pods); code != 401 || err != nil { // with another token
		t.Errorf("got %d %q, %v", code, body, err)
	}
	client, err := rest.HTTPClientFor(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	response, err := client.Get(p.Config().Host + pods)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); string(body) != "me:secret" || err != nil {
		t.Errorf("got %d %q, %v", response.StatusCode, body, err)
	}
}
