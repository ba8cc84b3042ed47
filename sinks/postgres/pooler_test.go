package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// testSessionPooler writes through a pooler that retains sessions. A writer that ends without a word leaves no lock
// there.
func testSessionPooler(t *testing.T, server *pgtest.Server) {
	cutter := sinktest.NewCutter(t, server.Pooler(t, "session"))
	url := strings.Replace(server.URL("pooled"), server.Addr(), cutter.Addr(), 1)
	killed := postgres.New(url, postgres.Options{})
	open(t, killed)
	write(t, killed, batch(1, 5, time.Now(), event(keepwatch.Added, &thing{"a", 5, `{}`})))
	second := postgres.New(url, postgres.Options{})
	if _, err := second.Open(t.Context(), sinktest.Streams()); !strings.Contains(err.Error(), "this one is its standby") {
		t.Errorf("beside a writer: %v", err)
	}
	_, err := postgres.New(url+inTablespace("x"), postgres.Options{}).Open(t.Context(), sinktest.Streams())
	if err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "the pooler refuses a parameter of the address") {
		t.Errorf("with options: %v", err)
	}
	cutter.Cut()
	if stored := open(t, second); stored[0].Entries.Len() != 1 {
		t.Errorf("stored: %+v", stored[0])
	}
}

// testTransactionPooler refuses a pooler that shares sessions, with the reason.
func testTransactionPooler(t *testing.T, server *pgtest.Server) {
	for _, mode := range []string{"transaction", "statement"} {
		s := postgres.New(strings.Replace(server.URL("shared"), server.Addr(), server.Pooler(t, mode), 1), postgres.Options{})
		_, err := s.Open(t.Context(), sinktest.Streams())
		if err == nil || errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "use pool_mode=session") {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// testSearchPath makes the schema that the server reads in the address.
func testSearchPath(t *testing.T, server *pgtest.Server) {
	for parameter, want := range map[string]string{
		"Mixed_Case": "mixed_case", "%22Mixed_Case%22": "Mixed_Case", "%22a,b%22,public": "a,b",
		"%20Spaced%20,%20public": "spaced", "%22a%22%22b%22": `a"b`,
		"%C3%9Cber": "Über",
	} {
		s := postgres.New(server.URL(parameter), postgres.Options{})
		open(t, s)
		s.Close()
		open(t, s) // it finds its views
		if n := server.SQL(`SELECT count(*) FROM pg_tables WHERE schemaname = '` + want +
			`' AND tablename = 'states'`); n != "1" {
			t.Errorf("%s: schema %s has %s tables", parameter, want, n)
		}
	}
	long := strings.Repeat("%C3%A4", 40)
	open(t, postgres.New(server.URL(long), postgres.Options{})) // Postgres cuts the name
	_, err := postgres.New(server.URL("%22$user%22"), postgres.Options{}).Open(t.Context(), sinktest.Streams())
	if err == nil || errors.As(err, new(*sink.Unavailable)) ||
		err.Error() != "postgres: the search_path names no schema that exists and that the user may use" {
		t.Error(err)
	}

	// A schema that the user may not use, at the start and later, is not replaced by the next one.
	server.SQL(`CREATE SCHEMA theirs; CREATE ROLE passer LOGIN; GRANT ALL ON SCHEMA public TO passer`)
	passing := postgres.New(strings.Replace(server.URL("theirs,public"), "keepwatch@", "passer@", 1), postgres.Options{})
	const skipped = "the search_path leads to schema public: its first one, theirs, does not exist, or the user may not use it"
	if _, err := passing.Open(t.Context(), sinktest.Streams()); err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), skipped) {
		t.Error(err)
	}
	server.SQL(`GRANT ALL ON SCHEMA theirs TO passer`)
	open(t, passing)
	passing.Close()
	server.SQL(`REVOKE ALL ON SCHEMA theirs FROM passer`)
	_, err = passing.Open(t.Context(), sinktest.Streams())
	unavailable(t, err, skipped)
	if _, err := passing.Status(t.Context()); err == nil || !strings.Contains(err.Error(), skipped) {
		t.Error(err)
	}
	server.SQL(`GRANT USAGE ON SCHEMA theirs TO passer`)
	open(t, passing)

	// Nor is the user's own schema, which no address names.
	server.SQL(`CREATE SCHEMA passer; GRANT ALL ON SCHEMA passer TO passer`)
	for _, searchPath := range []string{"%22$user%22,public", ""} {
		own := postgres.New(strings.Replace(server.URL(searchPath), "keepwatch@", "passer@", 1), postgres.Options{})
		open(t, own)
		own.Close()
		server.SQL(`REVOKE ALL ON SCHEMA passer FROM passer`)
		_, err = own.Open(t.Context(), sinktest.Streams())
		unavailable(t, err, "the search_path leads to schema public: its first one, passer, does not exist, or the user may not use it")
		server.SQL(`GRANT ALL ON SCHEMA passer TO passer`)
		open(t, own)
		own.Close()
	}
}
