package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
)

// TestSyncClock checks that a clock that is ahead of the API server's from the start makes no state older than it is by
// the latter.
func TestSyncClock(t *testing.T) {
	parallel(t)
	s := newTypesServer(t)
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	var behind atomic.Bool
	address := s.through(func(w http.ResponseWriter, _ *http.Request) bool {
		if behind.Load() {
			w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)) // before the server's own
		}
		return false
	})
	to := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	run := func(flags ...string) string {
		return syncOnce(t, append([]string{"configmaps", "-A", "--to", to, "--server", address}, flags...)...)
	}
	behind.Store(true)
	configMap(t, client, "old", "x")
	run()
	deleteConfigMap(t, client, "old")
	run()
	for _, row := range []struct {
		behind bool
		code   int
	}{{true, 0}, {false, 1}} {
		behind.Store(row.behind)
		configMap(t, client, map[bool]string{true: "first", false: "second"}[row.behind], "x")
		said := run("--retention", "30m")
		code, out, stderr := execute(t, "history", "log", "configmap/old", "-n", "default", "--from", to)
		if code != row.code {
			t.Errorf("%+v: exit %d, %s%s", row, code, out, stderr)
		}
		if strings.Contains(said, "and that of the API server") != row.behind {
			t.Errorf("%+v: %s", row, said)
		}
	}
}
