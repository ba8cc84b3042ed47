package postgres_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
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

// thing is an object with any body.
type thing struct {
	name     string
	revision keepwatch.Revision
	json     string
}

func (o *thing) Key() keepwatch.Key           { return keepwatch.Key{Namespace: "ns", Name: o.name} }
func (o *thing) UID() keepwatch.UID           { return keepwatch.UID("uid-" + o.name) }
func (o *thing) Revision() keepwatch.Revision { return o.revision }
func (o *thing) JSON() []byte                 { return []byte(o.json) }
func (o *thing) Metadata() []byte             { return []byte(`{}`) }

// batch returns a batch with one piece of the first stream.
func batch(count uint64, at keepwatch.Revision, now time.Time, messages ...stream.Message) sink.Batch {
	p := stream.Piece{Messages: messages, Cursor: at, Count: count, Position: fmt.Appendf(nil,
		`{"cursor":%d,"told":%d,"count":%d,"serial":0}`, at, at, count)}
	before := sink.Progress{}
	return sink.Batch{Time: now.UTC().Truncate(time.Millisecond), Pieces: []sink.Piece{{Piece: p, Before: before,
		After: before.After(p)}}}
}

func event(kind keepwatch.ChangeType, o *thing) stream.Event {
	return stream.Event{Type: kind, Revision: o.revision, Object: o}
}

func write(t *testing.T, s *postgres.Sink, b sink.Batch) {
	t.Helper()
	if err := s.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// TestPostgres runs the tests that share one server.
func TestPostgres(t *testing.T) {
	server := pgtest.Start(t)
	t.Run("writers", func(t *testing.T) { testWriters(t, server) })
	t.Run("take over", func(t *testing.T) { testTakeOver(t, server) })
	t.Run("lost session", func(t *testing.T) { testLostSession(t, server) })
	t.Run("one transaction", func(t *testing.T) { testOneTransaction(t, server) })
	t.Run("as of", func(t *testing.T) { testAsOf(t, server) })
	t.Run("search_path", func(t *testing.T) { testSearchPath(t, server) })
	t.Run("session pooler", func(t *testing.T) { testSessionPooler(t, server) })
	t.Run("transaction pooler", func(t *testing.T) { testTransactionPooler(t, server) })
	t.Run("text", func(t *testing.T) { testText(t, server) })
	t.Run("names", func(t *testing.T) { testNames(t, server) })
	t.Run("changed by another program", func(t *testing.T) { testChanged(t, server) })
	t.Run("encodings", func(t *testing.T) { testEncodings(t, server) })
	t.Run("deleted", func(t *testing.T) { testDeleted(t, server) })
	t.Run("in the way", func(t *testing.T) { testInTheWay(t, server) })
	t.Run("refused", func(t *testing.T) { testRefused(t, server) })
	t.Run("clusters", func(t *testing.T) {
		sinktest.TestClusters(t, postgres.New(server.URL("clusters"), postgres.Options{}))
	})
	t.Run("history", func(t *testing.T) { testHistory(t, server) })
	t.Run("event dashboard", func(t *testing.T) { testEventDashboard(t, server) })
	t.Run("plans", func(t *testing.T) { testPlans(t, server) })
	t.Run("no history", func(t *testing.T) { testNoHistory(t, server) })
	t.Run("newer tables", func(t *testing.T) { testNewerTables(t, server) })
	t.Run("other tables", func(t *testing.T) { testOtherTables(t, server) })
	t.Run("retention", func(t *testing.T) { testRetention(t, server) })
	t.Run("max size", func(t *testing.T) { testMaxSize(t, server) })
	t.Run("groups", func(t *testing.T) { testGroups(t, server) })
	t.Run("groups of an older format", func(t *testing.T) { testGroupsOld(t, server) })
	t.Run("views in the way", func(t *testing.T) { testViewsInTheWay(t, server) })
	t.Run("readers of an older format", func(t *testing.T) { testGroupsOldRead(t, server) })
	t.Run("groups refused", func(t *testing.T) { testGroupsRefused(t, server) })
	t.Run("few states", func(t *testing.T) { testFewStates(t, server) })
	t.Run("slow objects", func(t *testing.T) { testSlowObjects(t, server) })
	t.Run("no lz4", func(t *testing.T) { testNoLZ4(t, server) })
	t.Run("a damaged group", func(t *testing.T) { testGroupDamaged(t, server) })
	t.Run("thinning", func(t *testing.T) { testThinning(t, server) })
	t.Run("read-only", func(t *testing.T) { testReadOnly(t, server) })
	t.Run("revoked", func(t *testing.T) { testRevoked(t, server) })
	t.Run("rotated password", func(t *testing.T) { testRotated(t, server) })
	t.Run("slow", func(t *testing.T) { testSlow(t, server) })
	t.Run("locked", func(t *testing.T) { testLocked(t, server) })
	t.Run("slow connection", func(t *testing.T) { testSlowConnection(t, server) })
	t.Run("wrong schema", func(t *testing.T) { testWrongSchema(t, server) })
	t.Run("full disk", func(t *testing.T) { testFullDisk(t, server) })
	t.Run("restart", func(t *testing.T) { testRestart(t, server) }) // last
}

// testWriters checks that a second writer waits, and that a writer which has lost its lock cannot
// commit any more.
func testWriters(t *testing.T, server *pgtest.Server) {
	url := server.URL("writers")
	first, second := postgres.New(url, postgres.Options{}), postgres.New(url, postgres.Options{})
	open(t, first)
	write(t, first, batch(1, 5, time.Now(), event(keepwatch.Added, &thing{"a", 5, `{}`})))
	_, err := second.Open(t.Context(), sinktest.Streams())
	if u := (*sink.Unavailable)(nil); !errors.As(err, &u) || !u.Standby ||
		err.Error() != "postgres: another keepwatch sync writes to schema writers; this one is its standby" {
		t.Fatalf("a second writer: %v", err)
	}
	// As a pooler does that ends the transaction's session: the lock is free, the first writer lives.
	server.SQL(`SELECT pg_advisory_unlock_all()`)
	fenced := postgres.New(url, postgres.Options{})
	server.SQL(`UPDATE writers.keepwatch SET writer = 'another'`)
	err = first.Write(t.Context(), batch(2, 6, time.Now(), event(keepwatch.Added, &thing{"b", 6, `{}`})))
	if !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "another keepwatch sync has taken over") {
		t.Fatalf("a writer that was replaced: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	stored := open(t, fenced)
	want := []stream.Entry{{Key: keepwatch.Key{Namespace: "ns", Name: "a"}, UID: "uid-a", Revision: 5}}
	if e := slices.Collect(stored[0].Entries.All()); !slices.Equal(e, want) {
		t.Errorf("stored: %+v", e)
	}
}

// testTakeOver checks that a process which was elected ends the session of the one before, whose transactions are
// refused from then on, and which cannot take over again.
func testTakeOver(t *testing.T, server *pgtest.Server) {
	url := server.URL("elected")
	frozen, elected := postgres.New(url, postgres.Options{TakeOver: true}), postgres.New(url,
		postgres.Options{TakeOver: true})
	open(t, frozen)
	_, err := elected.Open(t.Context(), sinktest.Streams())
	if !errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "a session that must not write to schema elected any more is ended") {
		t.Fatalf("the elected one: %v", err)
	}
	await.NoError(t, "the session ends", func() error {
		_, err := elected.Open(t.Context(), sinktest.Streams())
		return err
	})
	err = frozen.Write(t.Context(), batch(1, 6, time.Now(), event(keepwatch.Added, &thing{"b", 6, `{}`})))
	if !errors.As(err, new(*sink.Unavailable)) {
		t.Fatalf("a write of the one before: %v", err)
	}
	if err := frozen.Close(); err != nil {
		t.Log(err) // of a connection that the server has ended
	}
	_, err = frozen.Open(t.Context(), sinktest.Streams())
	if !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "this one is its standby") {
		t.Fatalf("the one before: %v", err)
	}
	write(t, elected, batch(1, 6, time.Now(), event(keepwatch.Added, &thing{"c", 6, `{}`})))
	if err := elected.Close(); err != nil {
		t.Fatal(err)
	}
}

// testLostSession checks that a sink whose connection was cut without a sign does not wait for the session that it has
// lost.
func testLostSession(t *testing.T, server *pgtest.Server) {
	var frozen atomic.Bool
	proxy := freezing(t, server.Addr(), &frozen)
	s := postgres.New(strings.Replace(server.URL("lost"), server.Addr(), proxy, 1), postgres.Options{})
	open(t, s)
	write(t, s, batch(1, 5, time.Now(), event(keepwatch.Added, &thing{"a", 5, `{}`})))
	frozen.Store(true) // the server's side of the connection lives on
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Write(ctx, batch(2, 6, time.Now(), event(keepwatch.Added, &thing{"b", 6, `{}`}))); err == nil {
		t.Fatal("a write without a connection succeeds")
	}
	_ = s.Close() // of a connection that is lost
	frozen.Store(false)
	_, err := s.Open(t.Context(), sinktest.Streams())
	if !errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "a session that must not write to schema lost any more is ended") {
		t.Fatalf("the sink whose session is lost: %v", err)
	}
	await.NoError(t, "the session ends", func() error {
		_, err := s.Open(t.Context(), sinktest.Streams())
		return err
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// freezing returns the address of a proxy whose connections are lost while it is frozen: their client's side is closed,
// and the server's side stays open.
func freezing(t *testing.T, server string, frozen *atomic.Bool) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			t.Cleanup(func() { behind.Close() })
			go func() { _, _ = io.Copy(client, behind) }()
			go func() {
				buffer := make([]byte, 4096)
				for {
					n, err := client.Read(buffer)
					if frozen.Load() || err != nil {
						client.Close()
						return // without an end for the server
					}
					if _, err := behind.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// testText stores what Kubernetes' strings may contain, by statements and by COPY.
func testText(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("text"), postgres.Options{})
	open(t, s)
	text := `{"nul":"a\u0000b","escaped":"\\u0000","pair":"\ud83d\ude42","half":"\ud83dx\ude42","big":123456789012345678901234567890,"name":"` + "\u2603" + `"}`
	want := `{"nul":"a\ufffdb","escaped":"\\u0000","pair":"🙂","half":"\ufffdx\ufffd","big":123456789012345678901234567890,"name":"☃"}`
	write(t, s, batch(1, 1, time.Now(), event(keepwatch.Added, &thing{"one", 1, text})))
	var many []stream.Message
	for i := range 200 {
		many = append(many, event(keepwatch.Added, &thing{fmt.Sprint("many-", i), 2, text}))
	}
	write(t, s, batch(201, 2, time.Now(), many...))
	got := strings.Split(server.SQL(`SELECT DISTINCT object, count(*) OVER () FROM text.current_pods`), "|")
	var a, b any
	if err := errors.Join(json.Unmarshal([]byte(got[0]), &a), json.Unmarshal([]byte(want), &b)); err != nil ||
		fmt.Sprint(a) != fmt.Sprint(b) || got[1] != "201" {
		t.Errorf("stored %s, want 201 times %s (%v)", got, want, err)
	}
}

// testInTheWay opens schemas that have a table or view of another program.
func testInTheWay(t *testing.T, server *pgtest.Server) {
	for i, object := range []string{
		`TABLE way.current_pods (x int)`, `VIEW way.current_pods AS SELECT 1 AS x`, `TABLE way.resources (x int)`,
		`TABLE way.states (x int)`, `TABLE way.groups (x int)`,
	} {
		server.SQL(`DROP SCHEMA IF EXISTS way CASCADE; CREATE SCHEMA way; CREATE ` + object)
		s := postgres.New(server.URL("way"), postgres.Options{})
		_, err := s.Open(t.Context(), sinktest.Streams())
		if err == nil || errors.As(err, new(*sink.Unavailable)) ||
			!strings.Contains(err.Error(), "a table or view of another program is in the way") ||
			!strings.Contains(err.Error(), strings.Split("current_pods current_pods resources states groups", " ")[i]) {
			t.Errorf("%s: %v", object, err)
		}
	}
	server.SQL(`DROP SCHEMA way CASCADE`)
	s := postgres.New(server.URL("way"), postgres.Options{})
	for _, table := range []string{"states", "resources"} {
		open(t, s)
		s.Close()
		server.SQL(`SET search_path = way; DROP VIEW current_pods; CREATE VIEW current_pods AS SELECT name FROM ` + table)
	}
	open(t, s) // with a view of the user's
	s.Close()
}

// testEncodings stores every character: in a database that has no place for it nothing is stored, and a default of the
// role counts for nothing.
func testEncodings(t *testing.T, server *pgtest.Server) {
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		name := strings.ToLower(encoding)
		server.SQL(fmt.Sprintf(`CREATE DATABASE %s ENCODING '%s' TEMPLATE template0`, name, encoding))
		for _, parameter := range []string{"", "&client_encoding=UTF8", "&client_encoding=LATIN1"} {
			s := postgres.New(strings.Replace(server.URL("encoded"), "/postgres?", "/"+name+"?", 1)+parameter, postgres.Options{})
			_, err := s.Open(t.Context(), sinktest.Streams())
			if err == nil || errors.As(err, new(*sink.Unavailable)) ||
				!strings.Contains(err.Error(), "the database has the encoding "+encoding) {
				t.Errorf("%s%s: %v", name, parameter, err)
			}
		}
	}
	server.SQL(`CREATE ROLE encoded LOGIN; ALTER ROLE encoded SET client_encoding = 'LATIN1'`)
	f := startFailing(t, server, "encoded", "")
	if err := f.add(t.Context(), `{"text":"😀"}`); err != nil {
		t.Error(err)
	}
	if got := server.SQL(`SELECT count(*) FROM encoded.current_pods WHERE object ->> 'text' = U&'\+01F600'`); got != "1" {
		t.Errorf("%s rows have the character", got)
	}
	f.reopen()
}

// testDeleted deletes the tables while a process uses them: it does not store everything anew, as another one does.
func testDeleted(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("deleted"), postgres.Options{})
	open(t, s)
	write(t, s, batch(1, 5, time.Now(), event(keepwatch.Added, &thing{"a", 5, `{}`})))
	for name, use := range map[string]func() error{
		"checked": func() error { return s.Check(t.Context()) },
		"written": func() error { return s.Write(t.Context(), batch(1, 6, time.Now())) },
		"opened again": func() error {
			s.Close()
			_, err := s.Open(t.Context(), sinktest.Streams())
			return err
		},
	} {
		s.Close()
		server.SQL(`DROP SCHEMA IF EXISTS deleted CASCADE`)
		s = postgres.New(server.URL("deleted"), postgres.Options{})
		open(t, s)
		server.SQL(`DROP SCHEMA deleted CASCADE`)
		if err := use(); err == nil || errors.As(err, new(*sink.Unavailable)) ||
			!strings.Contains(err.Error(), "the tables were deleted while they were in use") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.Close() // the last use may leave it open, and the next process would be its standby
	server.SQL(`DROP SCHEMA IF EXISTS deleted CASCADE`)
	if stored := open(t, postgres.New(server.URL("deleted"), postgres.Options{})); stored[0].Entries.Len() > 0 {
		t.Errorf("%d objects in new tables", stored[0].Entries.Len())
	}
}

// testNames stores, changes and deletes objects whose names are any text, as those of RBAC are.
func testNames(t *testing.T, server *pgtest.Server) {
	url := server.URL("names")
	s := postgres.New(url, postgres.Options{})
	open(t, s)
	random := make([]byte, 2<<10) // no compression makes an index row of it
	_, _ = rand.Read(random)
	long := hex.EncodeToString(random)
	names := []string{
		"plain", "a\x00b", `a\u0000b`, `a\u005cb`, `a\u005cu0000b`, `a\b`, "ünï☃", long, long + "\x00", long[:39] + "☃" +
			long, long[:40] + "x" + long,
		long[:40] + "~sha256:" + fmt.Sprintf("%x", sha256.Sum256([]byte(long))),
	}
	entries := map[string]keepwatch.Revision{}
	write := func(at keepwatch.Revision, kind keepwatch.ChangeType, names ...string) {
		t.Helper()
		var messages []stream.Message
		for _, name := range names {
			if entries[name] = at; kind == keepwatch.Deleted {
				delete(entries, name)
			}
			messages = append(messages, event(kind, &thing{name, at, `{"metadata":{"name":"x"}}`}))
		}
		write(t, s, batch(uint64(len(entries)), at, time.Now(), messages...))
		s.Close()
		got := map[string]keepwatch.Revision{}
		for e := range open(t, s)[0].Entries.All() {
			if got[e.Key.Name] = e.Revision; e.UID != keepwatch.UID("uid-"+e.Key.Name) {
				t.Errorf("%.80q has the UID %.80q", e.Key.Name, e.UID)
			}
		}
		if !maps.Equal(got, entries) {
			t.Errorf("at %d: %d entries, want %d: %.300q", at, len(got), len(entries), slices.Collect(maps.Keys(got)))
		}
	}
	old := strings.Repeat("old☃", 100) // format 1 had room for it
	write(4, keepwatch.Added, old)
	s.Close()
	server.SQL(undoNinth("names") + `UPDATE names.resources SET name = full_name; ALTER TABLE names.gaps DROP COLUMN began, DROP COLUMN ended;
		ALTER TABLE names.keepwatch DROP COLUMN thinned;
		ALTER TABLE names.resources DROP COLUMN full_name, DROP COLUMN sum, DROP COLUMN bytes; DROP TABLE names.types, names.thinning; DROP INDEX names.resources_from, names.resources_to, names.resources_aged;
		ALTER TABLE names.cursors DROP COLUMN first_epoch, DROP COLUMN first_revision, DROP COLUMN first_seen; UPDATE names.keepwatch SET format = 1`)
	open(t, s)
	write(5, keepwatch.Modified, old)
	write(5, keepwatch.Added, names...)
	write(6, keepwatch.Modified, names...)
	many := names
	for i := range 60 { // by COPY
		many = append(many, fmt.Sprint(long, "\x00", i))
	}
	write(7, keepwatch.Added, many[len(names):]...)
	write(8, keepwatch.Deleted, many...)
}

// testChanged checks that rows which another program has deleted are noticed, when they change and
// at the next start.
func testChanged(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("changed"), postgres.Options{})
	open(t, s)
	write(t, s, batch(1, 1, time.Now(), event(keepwatch.Added, &thing{"a", 1, `{}`})))
	server.SQL(`DELETE FROM changed.states`)
	err := s.Write(t.Context(), batch(1, 2, time.Now(), event(keepwatch.Modified, &thing{"a", 2, `{}`})))
	if err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "another program has changed the tables") {
		t.Errorf("written: %v", err)
	}
	s.Close()
	stored := open(t, s)
	if _, err := stream.NewTransactional(stored[0].Stored, nil, stream.Options{}); err == nil ||
		!strings.Contains(err.Error(), "1 objects were stored, and there are 0") {
		t.Errorf("opened: %v", err)
	}
}

// testRefused checks what Open refuses, and that no message has a password.
func testRefused(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("newer"), postgres.Options{})
	open(t, s)
	s.Close()
	server.SQL(`UPDATE newer.keepwatch SET format = 99`)
	server.SQL(`CREATE SCHEMA foreign_tables; CREATE TABLE foreign_tables.resources (x int)`)
	server.SQL(`CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA writers TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA writers TO reader`)
	url := server.URL("writers")
	for name, row := range map[string]struct{ url, want string }{
		"a newer format":   {server.URL("newer"), "the tables have format 99"},
		"other tables":     {server.URL("foreign_tables"), `relation "resources" already exists`},
		"no such database": {strings.Replace(url, "/postgres?", "/nonsense?", 1), `database "nonsense" does not exist`},
		"no such user":     {strings.Replace(url, "keepwatch@", "nonsense:pa55word@", 1), `role "nonsense" does not exist`},
		"a reader":         {strings.Replace(url, "keepwatch@", "reader@", 1), "permission denied"},
		"a wrong address":  {"postgres://u:pa55word@[h/d", "cannot parse"},
	} {
		_, err := postgres.New(row.url, postgres.Options{}).Open(t.Context(), sinktest.Streams())
		if err == nil || errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), row.want) ||
			strings.Contains(err.Error(), "pa55word") {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	other := sinktest.Streams()
	other[0].ID.LabelSelector = "a=b"
	if _, err := postgres.New(server.URL("changed"), postgres.Options{}).Open(t.Context(), other); err == nil ||
		!strings.Contains(err.Error(), "it has the objects of pods in all namespaces") {
		t.Errorf("another selection: %v", err)
	}
	const unreachable = "postgres://keepwatch@127.0.0.1:1/postgres"
	if _, err := postgres.New(unreachable, postgres.Options{}).Open(t.Context(), nil); !errors.As(err,
		new(*sink.Unavailable)) {
		t.Errorf("a server that does not run: %v", err)
	}
}

// testRetention checks that ended rows are deleted after the retention, and current ones never.
func testRetention(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("retention"), postgres.Options{Retention: time.Hour})
	open(t, s)
	now := time.Now()
	write(t, s, batch(2, 2, now.Add(-3*time.Hour), event(keepwatch.Added, &thing{"a", 1, `{}`}), event(keepwatch.Added,
		&thing{"b", 2, `{}`})))
	write(t, s, batch(1, 4, now.Add(-2*time.Hour), event(keepwatch.Modified, &thing{"a", 3, `{}`}),
		event(keepwatch.Deleted, &thing{"b", 4, `{}`})))
	write(t, s, batch(1, 5, now.Add(-time.Minute), event(keepwatch.Modified, &thing{"a", 5, `{}`})))
	write(t, s, batch(1, 6, now))
	write(t, s, batch(1, 7, now.AddDate(10, 0, 0))) // the clock jumps, and nothing is older for it
	if got := server.SQL(`SELECT name, valid_from, valid_to FROM retention.resources ORDER BY id`); got != "a|3|5\na|5|" {
		t.Errorf("the rows are %q", got)
	}
}

// testRestart kills the server below an open sink: the failure is worth another attempt, which
// finds what was committed.
func testRestart(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("restart"), postgres.Options{})
	open(t, s)
	write(t, s, batch(1, 1, time.Now(), event(keepwatch.Added, &thing{"a", 1, `{}`})))
	server.Kill()
	err := s.Write(t.Context(), batch(2, 2, time.Now(), event(keepwatch.Added, &thing{"b", 2, `{}`})))
	if !errors.As(err, new(*sink.Unavailable)) {
		t.Errorf("written to a killed server: %v", err)
	}
	s.Close()
	if _, err := s.Open(t.Context(), sinktest.Streams()); !errors.As(err, new(*sink.Unavailable)) {
		t.Errorf("opened a killed server: %v", err)
	}
	server.Restart()
	stored := open(t, s)
	if stored[0].Entries.Len() != 1 || stored[0].Progress.Cursor != 1 {
		t.Errorf("stored: %+v", stored[0])
	}
	status, err := s.Status(t.Context())
	if err != nil || len(status) != 4 || status[3].ID.Resource != "widgets.example.com" || status[2].Count != 1 ||
		!status[2].Active {
		t.Errorf("status: %+v, %v", status, err)
	}
}

// BenchmarkPods writes pods of a large cluster; see [sinktest.Benchmark].
func BenchmarkPods(b *testing.B) {
	server := pgtest.Start(b)
	n := 0
	sinktest.Benchmark(b, 5000, func() sink.Sink {
		n++
		return postgres.New(server.URL(fmt.Sprint("bench", n)), postgres.Options{})
	})
}

// testOneTransaction checks that rows, gaps and cursors of a batch are stored together, also with COPY.
func testOneTransaction(t *testing.T, server *pgtest.Server) {
	for name, added := range map[string]int{"few": 3, "many": 100} {
		url := server.URL("atomic_" + name)
		s := postgres.New(url, postgres.Options{})
		open(t, s)
		s.Close()
		sinktest.TestOneTransaction(t, s, read(t, url), added, refuser(server, "atomic_"+name))
	}
}

// testAsOf checks that each object has one state at every revision, for rows that are inserted one by one and together.
func testAsOf(t *testing.T, server *pgtest.Server) {
	for name, more := range map[string]int{"few": 3, "many": 60} {
		url := server.URL("as_of_" + name)
		s := postgres.New(url, postgres.Options{})
		open(t, s)
		s.Close()
		sinktest.TestAsOf(t, s, read(t, url), more)
	}
}
