package synced

import (
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/sinks/testonly/kafkatest"
	"github.com/keepwatch/keepwatch/sinks/testonly/natstest"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
)

// sinks are measured in this order. Each one's function starts its server, and returns what makes the arguments for an
// empty sink.
var sinks = []struct {
	name  string
	start func(testing.TB) func() []string
}{
	{"sqlite", func(tb testing.TB) func() []string {
		return func() []string { return []string{"--to", "sqlite:" + filepath.Join(tb.TempDir(), "state.db")} }
	}},
	{"files", func(tb testing.TB) func() []string {
		return func() []string { return []string{"--to", "files:" + filepath.Join(tb.TempDir(), "changes")} }
	}},
	{"postgres", func(tb testing.TB) func() []string {
		server := pgtest.Start(tb, "fsync=on", "shared_buffers=512MB", "max_wal_size=4GB")
		return func() []string { return []string{"--to", server.URL(name())} }
	}},
	{"http", func(tb testing.TB) func() []string {
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
			_, _ = io.Copy(io.Discard, request.Body) // a sender that is gone sees it by itself
		}))
		tb.Cleanup(server.Close)
		return func() []string {
			return []string{"--to", server.URL, "--state", filepath.Join(tb.TempDir(), "state"), "--mode", "batched"}
		}
	}},
	{"nats", func(tb testing.TB) func() []string {
		server := natstest.Start(tb, "")
		return func() []string { return []string{"--to", "nats://" + server.Addr() + "/" + name()} }
	}},
	{"kafka", func(tb testing.TB) func() []string {
		broker := kafkatest.Start(tb, nil)
		return func() []string { return []string{"--to", "kafka://" + broker.Addr() + "/" + name() + ".{resource}"} }
	}},
}

// name returns a new name of a schema, a stream or topics.
func name() string { return "b" + strings.ToLower(rand.Text()[:8]) }
