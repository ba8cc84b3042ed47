package follow

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/internal/startup"
)

// statusError is the error of a response with a Status.
func statusError(code int32, retryAfter int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: code, Reason: metav1.StatusReason(http.StatusText(int(code))), Message: fmt.Sprint("status ", code),
		Details: &metav1.StatusDetails{RetryAfterSeconds: retryAfter},
	}}
}

func TestFinal(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{startup.Refused(errors.New("no such type")), true},
		{statusError(400, 0), true},
		{fmt.Errorf("can't read: %w", statusError(403, 0)), true},
		{statusError(404, 0), true},
		{&url.Error{Op: "Get", Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}, true},
		{fmt.Errorf("can't read: %w", statusError(401, 0)), false},
		{statusError(408, 0), false},
		{statusError(410, 0), false},
		{statusError(429, 1), false},
		{statusError(500, 0), false},
		{statusError(503, 0), false},
		{&url.Error{Op: "Get", Err: syscall.ECONNREFUSED}, false},
		{context.DeadlineExceeded, false},
		{io.ErrUnexpectedEOF, false},
	} {
		if got := startup.Final(tt.err); got != tt.want {
			t.Errorf("%v is final: %v, want %v", tt.err, got, tt.want)
		}
	}
}

// TestRetryRequest checks the waits between attempts, which are those of the failure table.
func TestRetryRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var waits []time.Duration
		last := time.Now()
		attempts := 0
		err := newStatusPrinter(&out, &out).retryRequest(t.Context(), func(context.Context) error {
			waits, last = append(waits, time.Since(last)), time.Now()
			if attempts++; attempts < 9 {
				return statusError(503, 0)
			}
			return startup.Refused(errors.New("no such type"))
		})
		if err == nil || err.Error() != "no such type" || attempts != 9 {
			t.Errorf("got %v after %d attempts", err, attempts)
		}
		limits := []time.Duration{0, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000}
		for i, wait := range waits {
			if (i > 0 && wait <= 0) || wait > limits[i]*time.Millisecond {
				t.Errorf("wait %d is %v, want at most %v", i, wait, limits[i]*time.Millisecond)
			}
		}
		want := regexp.MustCompile(`^(keepwatch: status 503; retrying in [0-9.]+m?s\n){8}$`)
		if !want.MatchString(out.String()) {
			t.Errorf("printed %s", &out)
		}
	})
}

// TestRetryAfter checks that a retry waits at least for Retry-After.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, attempts := time.Now(), 0
		err := newStatusPrinter(io.Discard, io.Discard).retryRequest(t.Context(), func(context.Context) error {
			if attempts++; attempts > 1 {
				return nil
			}
			return statusError(429, 7)
		})
		if waited := time.Since(begin); err != nil || waited < 7*time.Second || waited > 8*time.Second {
			t.Errorf("%v after %v", err, waited)
		}
	})
}

// TestRetryRequestEnds checks that retryRequest returns the cause of its context during a wait.
func TestRetryRequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := errors.New("ended")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, ended)
		defer cancel()
		err := newStatusPrinter(io.Discard, io.Discard).retryRequest(ctx, func(context.Context) error {
			return statusError(429, 100)
		})
		if !errors.Is(err, ended) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWithoutAddress(t *testing.T) {
	long := &url.Error{Op: "Get", URL: "https://127.0.0.1:6443/api?timeout=32s", Err: syscall.ECONNREFUSED}
	if got := startup.WithoutAddress(long); !errors.Is(got, syscall.ECONNREFUSED) ||
		strings.Contains(got.Error(), "timeout") {
		t.Errorf("got %v", got)
	}
	if got := startup.WithoutAddress(io.EOF); got != io.EOF {
		t.Errorf("got %v", got)
	}
}

// TestTypeOfAStartingServer asks for a type of a CustomResourceDefinition that a server does not have before it is
// ready.
func TestTypeOfAStartingServer(t *testing.T) {
	var asked atomic.Int64 // how often whether it is ready
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		ready := asked.Load() > 2
		switch {
		case r.URL.Path == "/readyz" && asked.Add(1) <= 2:
			http.Error(w, "[-]poststarthook/start-apiextensions-controllers failed: not finished",
				http.StatusInternalServerError)
		case r.URL.Path == "/readyz":
			fmt.Fprint(w, "ok")
		case r.URL.Path == "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case r.URL.Path == "/api/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[]}`)
		case r.URL.Path == "/apis" && !ready:
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		case r.URL.Path == "/apis":
			fmt.Fprint(w,
				`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}],"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}}]}`)
		case r.URL.Path == "/apis/example.com/v1" && ready:
			fmt.Fprint(w,
				`{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[{"name":"widgets","namespaced":true,"kind":"Widget","verbs":["list","watch"]}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	o := cluster.NewFlags()
	*o.Config.APIServer, *o.Config.CacheDir = server.URL, t.TempDir()
	var out bytes.Buffer
	resolve := func(kind string) (*cluster.Target, error) {
		return o.Resolve(t.Context(), newStatusPrinter(&out, &out).retryRequest, cluster.TypeAndName{Kind: kind},
			cluster.Selection{}, "list",
			"watch")
	}
	target, err := resolve("widgets.example.com")
	if err != nil || target.Name() != "widgets.example.com" ||
		strings.Count(out.String(), "the server is not ready: it may lack types; retrying in") != 2 {
		t.Errorf("%+v, %v: %s", target, err, &out)
	}
	if _, err := resolve("gadgets.example.com"); err == nil ||
		err.Error() != `the server doesn't have a resource type "gadgets" in group "example.com"` {
		t.Error(err)
	}
}
