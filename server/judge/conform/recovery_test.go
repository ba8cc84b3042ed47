package conform_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/judgetest"
	"github.com/keepwatch/keepwatch/server/judge/conform"
)

// starting is a server that refuses requests after a disturbance.
type starting struct {
	code            int
	reason, message string
	writesOnly      bool

	left atomic.Int64 // the requests that it refuses
}

// The answers of a kube-apiserver that starts.
var startings = map[string]*starting{
	"admission is not ready": {code: 403, reason: "Forbidden",
		message: `configmaps "a" is forbidden: not yet ready to handle request`},
	"roles are not read": {code: 403, reason: "Forbidden",
		message: `configmaps "a" is forbidden: User "admin" cannot get resource "configmaps": access denied`},
	"users are not read": {code: 401, reason: "Unauthorized", message: "Unauthorized"},
	"overloaded": {code: 429, reason: "TooManyRequests",
		message: "the server has received too many requests and has asked us to try again later"},
	"storage is not ready": {code: 503, reason: "ServiceUnavailable",
		message: "the server is currently unable to handle the request"},
}

func (s *starting) serve(t *testing.T) *rest.Config {
	t.Helper()
	return judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		isWrite := r.Method == http.MethodPost || r.Method == http.MethodPut
		if s.writesOnly && !isWrite || s.left.Add(-1) < 0 {
			return false
		}
		judgetest.Refuse(w, s.code, s.reason, s.message, "")
		return true
	}}.Serve(t, api)
}

// disturb makes the server refuse some requests.
func (s *starting) disturb(requests int64) func(context.Context) error {
	return func(context.Context) error {
		s.left.Store(requests)
		return nil
	}
}

// A server that starts refuses writes, reads and watches for a while.
func TestStartingServer(t *testing.T) {
	t.Parallel()
	for name, s := range startings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := conform.BuiltinOnly(conform.Only(small, "storm"))
			o.Disturb = s.disturb(40)
			report, err := conform.Run(t.Context(), s.serve(t), o)
			if err != nil {
				t.Fatal(err)
			}
			if s.left.Load() > 0 {
				t.Errorf("%d requests were not made", s.left.Load())
			}
			for _, one := range report.Results {
				if one.Verdict != conform.Kept {
					t.Errorf("%s is %v: %v", one.Rule.ID, one.Verdict, one.Facts)
				}
			}
		})
	}
}

// An overloaded server refuses a part of the requests, and keeps the rules nevertheless.
func TestThrottledRules(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	server := judgetest.Proxy{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		request := fmt.Sprint(r.Method, r.URL, r.Header["Accept"], r.Header["Accept-Encoding"], r.Header["Upgrade"])
		mu.Lock()
		defer mu.Unlock()
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/configmaps") || seen[request] {
			return false
		}
		seen[request] = true
		judgetest.Refuse(w, http.StatusTooManyRequests, "TooManyRequests", "too many requests", "")
		return true
	}}.Serve(t, api)
	only := []string{"encoding.gzip", "encoding.watch", "encoding.websocket", "watch.since", "watch.timeout",
		"initial.newest", "initial.none"}
	report, err := conform.Run(t.Context(), server, conform.BuiltinOnly(conform.Only(small, only...)))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range report.Results {
		if one.Verdict != conform.Kept {
			t.Errorf("%s is %v: %v", one.Rule.ID, one.Verdict, one.Facts)
		}
	}
}

// A server that does not become ready ends the run.
func TestServerNeverReady(t *testing.T) {
	t.Parallel()
	s := &starting{code: 403, reason: "Forbidden", message: `configmaps "a" is forbidden: not yet ready to handle request`,
		writesOnly: true}
	o := conform.ShortRecovery(conform.BuiltinOnly(conform.Only(small, "storm")))
	o.Disturb = s.disturb(math.MaxInt64)
	if _, err := conform.Run(t.Context(), s.serve(t), o); err == nil ||
		!strings.Contains(err.Error(), "not yet ready to handle request") {
		t.Errorf("got %v", err)
	}
}

// A run ends with a server that does not answer again.
func TestServerNeverBack(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	server := judgetest.Proxy{Intercept: func(_ http.ResponseWriter, r *http.Request) bool {
		if gone.Load() && r.Method != http.MethodDelete {
			panic(http.ErrAbortHandler)
		}
		return false
	}}.Serve(t, api)
	o := conform.ShortRecovery(conform.BuiltinOnly(conform.Only(small, "storm")))
	o.Disturb = func(context.Context) error {
		gone.Store(true)
		return nil
	}
	if _, err := conform.Run(t.Context(), server, o); err == nil ||
		!strings.Contains(err.Error(), "cannot be reached for 1s") {
		t.Errorf("got %v", err)
	}
}
