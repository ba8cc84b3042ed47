package testserver

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// recorder is a test whose failures are expected.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// A server that could not start in the background fails its test: when it is used, and if it is not, at the end.
func TestFailedStart(t *testing.T) {
	test := &recorder{TB: t}
	s := newServer(test, options{version: "not a version"})
	go s.begin()
	func() {
		defer func() { _ = recover() }()
		t.Errorf("the configuration is %v", s.Config())
	}()
	s.Close()
	if len(test.failures) != 2 {
		t.Fatalf("failures: %q", test.failures)
	}
	for _, f := range test.failures {
		if !strings.Contains(f, "not a version") {
			t.Errorf("the failure %q does not name the cause", f)
		}
	}
}
