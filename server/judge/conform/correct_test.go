package conform_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/judgetest"
	"github.com/keepwatch/keepwatch/server/judge/conform"
)

// wantVerdict judges rules and fails the test for each that has another verdict.
func wantVerdict(t *testing.T, p judgetest.Proxy, o conform.Options, want conform.Verdict) {
	t.Helper()
	report, err := conform.Run(t.Context(), p.Serve(t, api), conform.BuiltinOnly(o))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range report.Results {
		if one.Verdict != want {
			t.Errorf("%s is %v: %v", one.Rule.ID, one.Verdict, one.Facts)
		}
	}
}

// A namespace that is given may have more objects of others than the run creates, before all of its own.
func TestCrowdedNamespace(t *testing.T) {
	t.Parallel()
	client, namespace := newNamespace(t, compacted)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range 520 {
		group.Go(func() error {
			foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("app-", i)}}
			_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, foreign, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	o := conform.BuiltinOnly(conform.Only(conform.Options{Namespace: namespace}, "pages.notolder", "pages.expired",
		"pages.remaining"))
	report, err := conform.Run(t.Context(), compacted, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range report.Results {
		if one.Verdict != conform.Kept {
			t.Errorf("%s is %v: %.400q", one.Rule.ID, one.Verdict, one.Facts)
		}
	}
}

// refuseInStream answers a streaming list with one ERROR event.
func refuseInStream(w http.ResponseWriter, code int, reason, message, details string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":%q,"reason":%q,"details":{%s},"code":%d}}`+"\n", message, reason, details, code)
}

// kube-apiserver refuses streaming lists within the stream if its etcd is old.
func TestStreamingListsOfOldEtcd(t *testing.T) {
	t.Parallel()
	wantVerdict(t, judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		isStreaming := r.URL.Query().Get("sendInitialEvents") == "true"
		if isStreaming {
			refuseInStream(w, 500, "InternalError", "the required storage feature RequestWatchProgress is disabled", "")
		}
		return isStreaming
	}}, conform.Only(small, "initial.newest", "initial.notolder", "initial.any", "initial.then"), conform.NotOffered)
}

const tooLarge = `"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1`

// A server behind a balancer does not know each revision at once: it answers 504, or an ERROR event, and clients ask
// again.
func TestLaggingServer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	p := judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		q := r.URL.Query()
		kind := strings.Join([]string{r.URL.Path, q.Get("resourceVersionMatch"), q.Get("limit"), q.Get("watch"),
			q.Get("sendInitialEvents")}, " ")
		mu.Lock()
		defer mu.Unlock()
		if r.Method != http.MethodGet || q.Get("resourceVersion") == "" || q.Get("resourceVersion") == "0" || seen[kind] {
			return false
		}
		seen[kind] = true
		if q.Get("sendInitialEvents") == "true" {
			refuseInStream(w, 504, "Timeout", "Too large resource version", tooLarge)
		} else {
			judgetest.Refuse(w, 504, "Timeout", "Too large resource version", tooLarge)
		}
		return true
	}}
	wantVerdict(t, p, conform.Only(small, "get.notolder", "list.any", "list.notolder", "pages.notolder", "watch.initial",
		"initial.newest", "initial.notolder", "initial.any"), conform.Kept)
}

// An update whose answer was lost may be done after the writer has read the object, and before it deletes it.
func TestLateUpdates(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	lost := map[string]*http.Request{} // by path
	updates, late := 0, 0
	p := judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		switch before := lost[r.URL.Path]; r.Method {
		case http.MethodDelete:
			if before != nil && forward(t, before) == http.StatusOK {
				late++
			}
			delete(lost, r.URL.Path)
		case http.MethodPut:
			delete(lost, r.URL.Path)
			if updates++; updates%2 == 0 {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				lost[r.URL.Path] = r.Clone(t.Context())
				lost[r.URL.Path].Body = io.NopCloser(bytes.NewReader(body))
				judgetest.Refuse(w, 504, "Timeout", "request timed out", "")
				return true
			}
		}
		return false
	}}
	o := conform.Only(small, "storm")
	o.Writes = 300
	report, err := conform.Run(t.Context(), p.Serve(t, api), conform.BuiltinOnly(o))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range report.Results {
		if one.Verdict == conform.Broken {
			t.Errorf("seed %d: %s: %.600q", report.Seed, one.Rule.ID, one.Facts)
		}
	}
	if late == 0 {
		t.Errorf("seed %d: no update was late", report.Seed)
	}
}

// A role that may create definitions may lack the permission for their objects.
func TestForbiddenCustomResource(t *testing.T) {
	t.Parallel()
	p := judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		isObject := strings.HasPrefix(r.URL.Path, "/apis/conform.keepwatch.io/")
		if isObject {
			judgetest.Refuse(w, 403, "Forbidden", `probes is forbidden: User "x" cannot create resource`, "")
		}
		return isObject
	}}
	report, err := conform.Run(t.Context(), p.Serve(t, api), conform.Only(small, "list.newest"))
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Resources) != 1 || len(report.Broken()) > 0 {
		t.Errorf("judged with %v: %v", report.Resources, report.Broken())
	}
}

// Watchers wait as long as an overloaded server asks them to.
func TestThrottledWatchers(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	last := map[string]time.Time{} // of the refused watches, by query: each has a view or a revision of its own
	p := judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		if !isWatch(r) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if before, again := last[r.URL.RawQuery]; again {
			if waited := time.Since(before); waited < time.Second {
				t.Errorf("a watch came again after %v", waited)
			}
			return false
		}
		last[r.URL.RawQuery] = time.Now()
		w.Header().Set("Retry-After", "1")
		judgetest.Refuse(w, 429, "TooManyRequests", "too many requests", "")
		return true
	}}
	o := conform.Only(small, "storm")
	o.Watchers, o.Disturb = 1, func(context.Context) error { return nil }
	wantVerdict(t, p, o, conform.Kept)
}

// An error of the server in place of an answer to a write says nothing about the rules of writes.
func TestFailedWrites(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	p := judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/configmaps") || n.Add(1) != 4 {
			return false
		}
		judgetest.Refuse(w, 504, "Timeout", "etcdserver: request timed out", "")
		return true
	}}
	o := conform.BuiltinOnly(conform.Only(small, "write.exists"))
	if _, err := conform.Run(t.Context(), p.Serve(t, api), o); err == nil ||
		!strings.Contains(err.Error(), "etcdserver: request timed out") {
		t.Errorf("got %v", err)
	}
}

// transport is a function that sends requests.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The timeout of a configuration bounds requests, and not watches.
func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	cfg := rest.CopyConfig(api)
	cfg.Timeout = 24 * time.Hour
	var lists, watches atomic.Int64
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			deadline, bounded := r.Context().Deadline()
			switch {
			case isWatch(r):
				watches.Add(1)
				if bounded {
					t.Errorf("the watch %s ends in %v", r.URL, time.Until(deadline))
				}
			case isList(r):
				lists.Add(1)
				if !bounded || time.Until(deadline) < cfg.Timeout/2 {
					t.Errorf("the list %s ends in %v", r.URL, time.Until(deadline))
				}
			}
			return next.RoundTrip(r)
		})
	})
	report, err := conform.Run(t.Context(), cfg, conform.BuiltinOnly(conform.Only(small, "watch.since")))
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Broken()) > 0 || lists.Load() == 0 || watches.Load() == 0 {
		t.Errorf("%d lists, %d watches, broken: %v", lists.Load(), watches.Load(), report.Broken())
	}
}
