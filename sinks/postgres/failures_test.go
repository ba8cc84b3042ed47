package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// failing is a sink of a role of its own, with one row.
type failing struct {
	*postgres.Sink
	t      *testing.T
	server *pgtest.Server
	name   string // of the schema and the role
	count  uint64
}

// startFailing opens the sink of a schema that its role owns. The role's password is in no address.
func startFailing(t *testing.T, server *pgtest.Server, name, parameters string) *failing {
	t.Helper()
	server.SQL(fmt.Sprintf(
		`DO $$ BEGIN CREATE ROLE %[1]s LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$; CREATE SCHEMA %[1]s AUTHORIZATION %[1]s`, name))
	f := &failing{t: t, server: server, name: name}
	f.Sink = postgres.New(strings.Replace(server.URL(name), "keepwatch@", name+"@", 1)+parameters, postgres.Options{})
	f.reopen()
	f.mustAdd()
	return f
}

// add writes one row more.
func (f *failing) add(ctx context.Context, body string) error {
	o := &thing{fmt.Sprint("o-", f.count+1), keepwatch.Revision(f.count + 1), body}
	err := f.Write(ctx, batch(f.count+1, o.revision, time.Now(), event(keepwatch.Added, o)))
	if err == nil {
		f.count++
	}
	return err
}

func (f *failing) mustAdd() {
	f.t.Helper()
	if err := f.add(f.t.Context(), `{}`); err != nil {
		f.t.Fatal(err)
	}
}

// reopen opens the sink again, which has all rows that were written.
func (f *failing) reopen() {
	f.t.Helper()
	f.Close()
	stored := open(f.t, f.Sink)
	if _, err := stream.NewTransactional(stored[0].Stored, nil, stream.Options{}); err != nil ||
		uint64(stored[0].Entries.Len()) != f.count || stored[0].Progress.Cursor != keepwatch.Revision(f.count) {
		f.t.Fatalf("%d rows were written; stored: %+v, %v", f.count, stored[0], err)
	}
}

// unavailable checks that an error is worth another attempt, says why on one line, and has no password.
func unavailable(t *testing.T, err error, want string) {
	t.Helper()
	if !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), want) ||
		strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want one line with %q that is worth another attempt", err, want)
	}
}

// endSessions ends the sessions of the role, as a restart of the server does.
func (f *failing) endSessions() {
	f.t.Helper()
	of := fmt.Sprintf(` FROM pg_stat_activity WHERE usename = '%s'`, f.name)
	f.server.SQL(`SELECT pg_terminate_backend(pid)` + of)
	await.True(f.t, "the sessions have ended", func() bool { return f.server.SQL(`SELECT count(*)`+of) == "0" })
}

// testReadOnly makes the database read-only for the sink, as a failover to a replica does.
func testReadOnly(t *testing.T, server *pgtest.Server) {
	f := startFailing(t, server, "readonly", "")
	server.SQL(`ALTER ROLE readonly SET default_transaction_read_only = on`)
	f.endSessions()
	if err := f.add(t.Context(), `{}`); !errors.As(err, new(*sink.Unavailable)) {
		t.Errorf("a session that was ended: %v", err)
	}
	f.Close()
	_, err := f.Open(t.Context(), sinktest.Streams())
	unavailable(t, err, "read-only transaction")
	server.SQL(`ALTER ROLE readonly SET default_transaction_read_only = off`)
	f.reopen()
	f.mustAdd()
}

// testRevoked takes the permission to insert from a sink that runs.
func testRevoked(t *testing.T, server *pgtest.Server) {
	f := startFailing(t, server, "revoked", "")
	server.SQL(`REVOKE INSERT ON revoked.states FROM revoked`)
	unavailable(t, f.add(t.Context(), `{}`), "permission denied for table states")
	server.SQL(`GRANT INSERT ON revoked.states TO revoked`)
	f.reopen()
	f.mustAdd()
}

// testRotated changes the password of a sink that runs: it is read anew at each attempt.
func testRotated(t *testing.T, server *pgtest.Server) {
	file := filepath.Join(t.TempDir(), "pgpass")
	t.Setenv("PGPASSFILE", file)
	put := func(password string) {
		if err := os.WriteFile(file, []byte("127.0.0.1:*:*:rotated:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("secret1")
	server.RequirePassword("rotated", "secret1")
	f := startFailing(t, server, "rotated", "")
	server.SQL(`ALTER ROLE rotated PASSWORD 'secret2'`)
	f.mustAdd() // the session stays
	f.endSessions()
	if err := f.add(t.Context(), `{}`); !errors.As(err, new(*sink.Unavailable)) {
		t.Errorf("a session that was ended: %v", err)
	}
	f.Close()
	_, err := f.Open(t.Context(), sinktest.Streams())
	unavailable(t, err, "password authentication failed")
	put("secret2")
	f.reopen()
	f.mustAdd()
}

// testLocked opens a sink while a transaction that has read its view is left open, which holds up nothing, and while a
// table is locked, for which it waits a bounded time.
func testLocked(t *testing.T, server *pgtest.Server) {
	url := server.URL("locked")
	s := postgres.New(url, postgres.Options{})
	open(t, s)
	s.Close()
	tx, err := read(t, url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM current_pods`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), sinktest.Streams()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	hasty := postgres.New(url+"&lock_timeout=100ms", postgres.Options{})
	if _, err := tx.ExecContext(t.Context(), `LOCK TABLE cursors`); err != nil {
		t.Fatal(err)
	}
	_, err = hasty.Open(t.Context(), sinktest.Streams())
	unavailable(t, err, "canceling statement due to lock timeout")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	open(t, hasty)
	hasty.Close()
	// Rows of new streams tell which bound their session has.
	server.SQL(`ALTER TABLE locked.cursors ADD COLUMN bound text DEFAULT current_setting('lock_timeout')`)
	for name, s := range map[string]*postgres.Sink{"first": s, "second": hasty} {
		joined := append(sinktest.Streams(), sink.Stream{ID: stream.Identity{Resource: name,
			Cluster: stream.Cluster{UID: "test"}}})
		if _, err := s.Open(t.Context(), joined); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	if got := server.SQL(`SELECT resource, bound FROM locked.cursors WHERE bound <> '0' ORDER BY resource`); got !=
		"first|30s\nsecond|100ms" {
		t.Errorf("the bounds are %q", got)
	}
}

// testSlow makes the sink wait for a lock, and checks that it can be ended meanwhile.
func testSlow(t *testing.T, server *pgtest.Server) {
	f := startFailing(t, server, "slow", "")
	tx, err := read(t, server.URL("slow")).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `LOCK TABLE resources`); err != nil {
		t.Fatal(err)
	}
	waiting := func() {
		t.Helper()
		for server.SQL(`SELECT count(*) FROM pg_stat_activity WHERE usename = 'slow' AND wait_event_type = 'Lock'`) != "1" {
			if t.Context().Err() != nil {
				t.Fatal("it does not wait")
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan error)
	go func() { written <- f.add(ctx, `{}`) }()
	waiting()
	cancel()
	if err := <-written; !errors.Is(err, context.Canceled) {
		t.Errorf("ended while it waited: %v", err)
	}
	f.endSessions()
	f.Close()
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	if tx, err = read(t, server.URL("slow")).BeginTx(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), `LOCK TABLE resources`); err != nil {
		t.Fatal(err)
	}
	go func() { written <- f.add(t.Context(), `{}`) }()
	waiting()
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Errorf("after the wait: %v", err)
	}
	f.reopen()
}

// testSlowConnection writes over a connection that needs longer for a batch than an empty one may take.
func testSlowConnection(t *testing.T, server *pgtest.Server) {
	cutter := sinktest.NewCutter(t, server.Addr())
	s := postgres.New(strings.Replace(server.URL("slow_connection"), server.Addr(), cutter.Addr(), 1), postgres.Options{})
	open(t, s)
	defer s.Close()
	s.SetTimeout(3 * time.Second)
	sinktest.WriteSlowly(t, s, cutter, 100<<10, sinktest.Large(100, 5<<10), 3*time.Second)
	s.Close()
	if stored := open(t, s); stored[0].Entries.Len() != 100 {
		t.Errorf("%d objects are stored", stored[0].Entries.Len())
	}
}

// testWrongSchema drops a column below a sink that runs: no other attempt can succeed.
func testWrongSchema(t *testing.T, server *pgtest.Server) {
	f := startFailing(t, server, "wrong", "")
	server.SQL(`ALTER TABLE wrong.gaps DROP COLUMN reason`)
	gap := stream.Gap{From: 1, To: 2, Reason: keepwatch.GapExpired}
	err := f.Write(t.Context(), batch(1, 2, time.Now(), gap))
	if err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), `column "reason" of relation "gaps" does not exist`) {
		t.Error(err)
	}
}

// inTablespace is the parameter of an address whose tables are in a tablespace.
func inTablespace(name string) string { return "&options=-c%20default_tablespace%3D" + name }
