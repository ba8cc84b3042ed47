package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// snapshotOf returns what reads one state of the tables at an address.
func snapshotOf(t *testing.T, url string) func(func(sink.Snapshot) error) {
	return func(read func(sink.Snapshot) error) {
		t.Helper()
		history, err := postgres.OpenHistory(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(history.Snapshot(t.Context(), read), history.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// testHistory reads the past while the schema is open for writing, also after the connection has ended, and tables of
// an older format.
func testHistory(t *testing.T, server *pgtest.Server) {
	url := server.URL("history")
	first := postgres.New(url, postgres.Options{})
	sinktest.TestHistory(t, first, snapshotOf(t, url))
	later := server.URL("history_later")
	sinktest.TestHistoryBeginsLater(t, postgres.New(later, postgres.Options{Retention: time.Hour}), snapshotOf(t, later))
	ofTypes := server.URL("history_types")
	sinktest.TestRetentionOfTypes(t, postgres.New(ofTypes, postgres.Options{
		Retention: 3 * time.Hour, RetentionOf: sinktest.RetentionOfTypes,
	}), snapshotOf(t, ofTypes))
	rewritten := server.URL("history_rewritten")
	s := postgres.New(rewritten, postgres.Options{RetentionOf: sinktest.RetentionOfTypes})
	s.SetSweep(2)
	sinktest.TestRetentionOfRewritten(t, s, snapshotOf(t, rewritten))
	points := server.URL("history_points")
	s = postgres.New(points, postgres.Options{Retention: time.Hour})
	s.SetPeaks(5)
	sinktest.TestPointAt(t, s, rand.Uint64(), snapshotOf(t, points))
	if n := server.SQL(`SELECT count(*) > 0 FROM history_points.peaks`); n != "t" {
		t.Errorf("peaks: %s", n)
	}
	testFillPeaks(t, server)
	gaps := server.URL("history_gaps")
	t.Run("gaps", func(t *testing.T) {
		sinktest.TestGapTimes(t, postgres.New(gaps, postgres.Options{}), snapshotOf(t, gaps))
	})
	// The tables get a newer format while the list of the last gap is not complete: its end stays open.
	server.SQL(undoNinth("history_gaps") + `ALTER TABLE history_gaps.gaps DROP COLUMN began, DROP COLUMN ended; ALTER TABLE history_gaps.keepwatch DROP COLUMN thinned; DROP TABLE history_gaps.thinning; DROP INDEX history_gaps.resources_aged;
		ALTER TABLE history_gaps.resources DROP COLUMN bytes; UPDATE history_gaps.keepwatch SET format = 4;
		UPDATE history_gaps.cursors SET gap = 'expired', cursor = 30 WHERE resource = 'pods'`)
	open(t, postgres.New(gaps, postgres.Options{}))
	snapshotOf(t, gaps)(func(tables sink.Snapshot) error {
		all, err := tables.Gaps(t.Context())
		if err != nil || len(all) != 3 || all[0].Ended.IsZero() || all[1].Ended.IsZero() || !all[2].Ended.IsZero() {
			t.Errorf("gaps of an older format: %+v, %v", all, err)
		}
		return nil
	})
	incomplete := server.URL("history_incomplete")
	sinktest.TestHistoryOfAnIncompleteList(t, postgres.New(incomplete, postgres.Options{Retention: time.Hour}),
		snapshotOf(t, incomplete))

	opened := func() *postgres.History {
		t.Helper()
		h, err := postgres.OpenHistory(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close() }) // it has changed nothing
		return h
	}
	history := opened()
	status := func() error {
		return history.Snapshot(t.Context(), func(tables sink.Snapshot) error {
			_, err := tables.Status(t.Context())
			return err
		})
	}
	if err := status(); err != nil {
		t.Fatal(err)
	}
	endReaders(t, server)
	if err := status(); err != nil {
		t.Errorf("after the connection has ended: %v", err)
	}
	testBeside(t, server, history)
	server.SQL(undoNinth("history") + `ALTER TABLE history.gaps DROP COLUMN began, DROP COLUMN ended; DROP TABLE history.types; DROP INDEX history.resources_from, history.resources_to; UPDATE history.keepwatch SET format = 3;
		ALTER TABLE history.cursors DROP COLUMN first_epoch, DROP COLUMN first_revision, DROP COLUMN first_seen;
		ALTER TABLE history.keepwatch DROP COLUMN thinned; ALTER TABLE history.resources DROP COLUMN bytes;
		DROP TABLE history.thinning; DROP INDEX history.resources_aged`)
	history = opened()
	snapshotOf(t, url)(func(tables sink.Snapshot) error {
		all, err := tables.Status(t.Context())
		types, err2 := tables.Types(t.Context())
		if err != nil || err2 != nil || len(types) != 0 || all[2].First != (sink.Point{Revision: 20}) {
			t.Errorf("an older format: %+v, %+v, %v, %v", all, types, err, err2)
		}
		return nil
	})
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	newer := postgres.New(url, postgres.Options{})
	open(t, newer)
	for range 2 { // also with the connection from before: a sync of another version may change the tables meanwhile
		if err := status(); err != nil {
			t.Errorf("tables that have changed: %v", err)
		}
	}
	if err := newer.Close(); err != nil {
		t.Error(err)
	}
}

// endReaders ends the sessions that have read a snapshot. They end a moment after they were told to.
func endReaders(t *testing.T, server *pgtest.Server) {
	t.Helper()
	const of = ` FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE 'rollback'`
	server.SQL(`SELECT pg_terminate_backend(pid)` + of)
	await.True(t, "the sessions have ended", func() bool { return server.SQL(`SELECT count(*)`+of) == "0" })
}

// testBeside reads as many snapshots beside each other as there may be.
func testBeside(t *testing.T, server *pgtest.Server, history *postgres.History) {
	waiting, cancel := context.WithCancel(t.Context())
	cancel()
	var read func(deep int) error
	read = func(deep int) error {
		return history.Snapshot(t.Context(), func(tables sink.Snapshot) error {
			if deep < postgres.MaxSnapshots {
				if err := read(deep + 1); err != nil {
					return err
				}
			} else if err := history.Snapshot(waiting, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("one more: %v", err)
			}
			_, err := tables.Status(t.Context())
			return err
		})
	}
	connections := func() string {
		return server.SQL(`SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'rollback'`)
	}
	for range 2 {
		if err := read(1); err != nil {
			t.Fatal(err)
		}
		if n := connections(); n != fmt.Sprint(postgres.MaxSnapshots) {
			t.Errorf("%s connections, want %d", n, postgres.MaxSnapshots)
		}
	}
}

// testPlans checks that the past is read by indexes: neither the whole table, nor an index to its end.
func testPlans(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("plans"), postgres.Options{})
	open(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// Each of 1,000 pods has 20 states.
	server.SQL(`INSERT INTO plans.states (resource, namespace, name, uid, epoch, valid_from, seen_from, to_epoch, valid_to, seen_to, object)
		SELECT 'pods', 'ns', 'p' || i % 1000, 'u', 0, i, seen, e, CASE WHEN e = 0 THEN i + 1000 END, CASE WHEN e = 0 THEN seen + interval '1000 s' END, '{}'
		FROM (SELECT i, CASE WHEN i <= 19000 THEN 0 END AS e, now() - (20000 - i) * interval '1 s' AS seen FROM generate_series(1, 20000) i) numbers;
		ANALYZE plans.states`)
	at := func(revision int) *sink.Point { return &sink.Point{Revision: keepwatch.Revision(revision)} }
	planOf := func(of sink.StateQuery) (query, plan string) {
		of.Resource = "pods"
		query, values := postgres.StatesQuery(of)
		for i, value := range slices.Backward(values) {
			text := fmt.Sprint(value)
			switch value := value.(type) {
			case string:
				text = "'" + value + "'"
			case []string:
				text = "'{" + strings.Join(value, ",") + "}'"
			}
			query = strings.ReplaceAll(query, fmt.Sprint("$", i+1), text)
		}
		return query, server.SQL(`SET search_path = plans; EXPLAIN (COSTS OFF) ` + query)
	}
	count := func(query string) string {
		lines := strings.Fields(server.SQL(`SET search_path = plans; SELECT count(*) FROM (` + query + `) found`))
		return lines[len(lines)-1]
	}
	for name, row := range map[string]struct {
		query  sink.StateQuery
		states int
		whole  bool // a part of an index is read to the end
	}{
		"between": {sink.StateQuery{After: at(10_000), UpTo: at(10_100)}, 200, false},
		"later":   {sink.StateQuery{At: at(10_000), NotAt: at(10_100)}, 100, true}, // what has begun until then
		"earlier": {sink.StateQuery{At: at(10_100), NotAt: at(10_000)}, 100, true},
		"now":     {sink.StateQuery{At: at(20_000)}, 1000, true},
	} {
		query, plan := planOf(row.query)
		if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "ROW(") != row.whole {
			t.Errorf("%s: %s\n%s", name, query, plan)
		}
		if n := count(query); n != fmt.Sprint(row.states) {
			t.Errorf("%s: %s states, want %d", name, n, row.states)
		}
	}
	// All pods are deleted at one point, of which the statistics do not know.
	server.SQL(`UPDATE plans.states SET to_epoch = 0, valid_to = 30000, seen_to = now(), deleted = true WHERE valid_to IS NULL`)
	for _, names := range [][]string{namesOfPods(8), namesOfPods(100)} {
		query, plan := planOf(sink.StateQuery{Namespace: "ns", Names: names, After: at(29_999), UpTo: at(30_000)})
		if !strings.Contains(plan, "resources_pkey") || strings.Contains(plan, "resources_to") {
			t.Errorf("%d names: %s", len(names), plan)
		}
		if n := count(query); n != fmt.Sprint(len(names)) {
			t.Errorf("%s states of %d names", n, len(names))
		}
	}
	testScans(t, server)
}

// namesOfPods returns the names of so many pods of testPlans.
func namesOfPods(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("p", i))
	}
	return names
}

// testScans reads each part of the past ten times over one connection, so that also the plans are tried that Postgres
// makes without the values.
func testScans(t *testing.T, server *pgtest.Server) {
	scans := func() string {
		const others = `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`
		await.True(t, "the sessions to have ended", func() bool { return server.SQL(others) == "0" })
		return server.SQL(`SELECT seq_scan FROM pg_stat_user_tables WHERE schemaname = 'plans' AND relname = 'states'`)
	}
	before := scans()
	history, err := postgres.OpenHistory(t.Context(), server.URL("plans"))
	if err != nil {
		t.Fatal(err)
	}
	resources := []string{"pods"}
	middle, later := sink.Point{Revision: 10_000}, sink.Point{Revision: 10_100}
	for i := range 10 {
		if err := history.Snapshot(t.Context(), func(tables sink.Snapshot) error {
			for _, query := range []sink.StateQuery{
				{Name: "p7", Namespace: "ns"}, {At: &middle, Namespace: "ns", Name: "p7"}, {At: &middle, NotAt: &later},
				{At: &later, NotAt: &middle}, {After: &middle, UpTo: &later}, {Since: time.Now().Add(time.Hour)},
				{Namespace: "ns", Names: []string{"p7", "p8"}, After: &middle, UpTo: &later},
				{Namespace: "ns", Names: namesOfPods(100), After: &middle, UpTo: &later},
			} {
				query.Resource = "pods"
				if err := tables.States(t.Context(), query, func(sink.State) error { return nil }); err != nil {
					return err
				}
			}
			_, err := tables.Example(t.Context(), "pods")
			_, err2 := tables.PointAt(t.Context(), resources, time.Now())
			_, err3 := tables.SeenAt(t.Context(), resources, middle)
			_, err4 := tables.PointsAfter(t.Context(), "pods", []string{"", "ns"}[i%2], middle, 200)
			return errors.Join(err, err2, err3, err4)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := history.Close(); err != nil {
		t.Fatal(err)
	}
	if after := scans(); after != before {
		t.Errorf("the table was read as a whole: %s times, before %s", after, before)
	}
}

// testNewerTables refuses tables that a newer keepwatch has made of those that were opened.
func testNewerTables(t *testing.T, server *pgtest.Server) {
	url := server.URL("becomes_newer")
	s := postgres.New(url, postgres.Options{})
	open(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	history, err := postgres.OpenHistory(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer history.Close()
	server.SQL(`UPDATE becomes_newer.keepwatch SET format = 99`)
	err = history.Snapshot(t.Context(), func(sink.Snapshot) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "use a newer keepwatch") {
		t.Error(err)
	}
}

// testOtherTables empties the tables of a history, and drops them, and lets another sync fill or make them anew: no
// snapshot is of those. Those of a snapshot stay until its end.
func testOtherTables(t *testing.T, server *pgtest.Server) {
	url := server.URL("made_anew")
	sync := func() {
		t.Helper()
		s := postgres.New(url, postgres.Options{})
		open(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sync()
	const stored = `INSERT INTO made_anew.types (resource, seen, type) VALUES ('pods', now(), '{}')`
	server.SQL(stored)
	history, err := postgres.OpenHistory(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer history.Close()
	const locked = `SELECT count(DISTINCT relation) FROM pg_locks WHERE mode = 'AccessShareLock'
		AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'made_anew'::regnamespace AND relkind = 'r')`
	read := func() error {
		return history.Snapshot(t.Context(), func(tables sink.Snapshot) error {
			if n := server.SQL(locked); n != "6" {
				t.Errorf("%s tables are locked", n)
			}
			_, err := tables.Status(t.Context())
			return err
		})
	}
	refuses := func(when string) {
		t.Helper()
		err := read()
		if !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "start the process again") {
			t.Errorf("%s: %v", when, err)
		}
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	server.SQL(`ALTER SCHEMA made_anew RENAME TO elsewhere`)
	refuses("renamed")
	server.SQL(`ALTER SCHEMA elsewhere RENAME TO made_anew`)
	if err := read(); err != nil {
		t.Errorf("back: %v", err)
	}
	server.SQL(`TRUNCATE made_anew.states, made_anew.groups, made_anew.cursors, made_anew.gaps, made_anew.types RESTART IDENTITY`)
	refuses("emptied")
	sync()
	server.SQL(stored)
	refuses("filled anew")
	if history, err = postgres.OpenHistory(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	defer history.Close()
	if err := read(); err != nil {
		t.Errorf("opened anew: %v", err)
	}
	server.SQL(`DROP SCHEMA made_anew CASCADE`)
	refuses("dropped")
	sync()
	refuses("made anew")
	endReaders(t, server)
	refuses("with another connection")
	again, err := postgres.OpenHistory(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Snapshot(t.Context(), func(sink.Snapshot) error { return nil }); err != nil {
		t.Errorf("another process: %v", err)
	}
}

// testNoHistory refuses what is no history, with one line.
func testNoHistory(t *testing.T, server *pgtest.Server) {
	for _, schema := range []string{"future", "damaged"} {
		s := postgres.New(server.URL(schema), postgres.Options{})
		open(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	server.SQL(`UPDATE future.keepwatch SET format = 99; DROP TABLE damaged.gaps; CREATE SCHEMA foreigner; CREATE TABLE foreigner.resources (x int)`)
	for name, row := range map[string]struct{ url, want string }{
		"a newer format": {server.URL("future"), "use a newer keepwatch"},
		"a table fewer":  {server.URL("damaged"), `relation "gaps" does not exist`},
		"other tables":   {server.URL("foreigner"), "the schema has no tables of keepwatch sync"},
		"no schema":      {server.URL("nowhere"), "the schema has no tables of keepwatch sync"},
		"no server":      {"postgres://127.0.0.1:1/none", "failed to connect"},
		"no address":     {"postgres://%zz", "cannot parse"},
	} {
		history, err := postgres.OpenHistory(t.Context(), row.url)
		if err == nil {
			history.Close()
		}
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, fmt.Sprint(err), row.want)
		}
	}
}

// testFillPeaks fills the peaks of tables of format 9, a few rows with each batch, by a clock that jumps. No peak is
// untrue at any time, and a process that continues reads a few rows again.
func testFillPeaks(t *testing.T, server *pgtest.Server) {
	url := server.URL("history_fill")
	s := postgres.New(url, postgres.Options{})
	s.SetPeaks(5)
	s.SetFill(7)
	db := read(t, url)
	count := func(query string) (n int) {
		t.Helper()
		if err := db.QueryRow(query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	sinktest.TestFillPeaks(t, s, rand.Uint64(), snapshotOf(t, url),
		func() { server.SQL(`DROP TABLE history_fill.peaks; UPDATE history_fill.keepwatch SET format = 9`) },
		func() {
			if n := count(`SELECT count(*) FROM peaks p JOIN states s ON s.resource = p.resource
				WHERE s.seen_from < p.seen AND (s.epoch, s.valid_from) > (p.epoch, p.revision)
					OR s.seen_to < p.seen AND (s.to_epoch, s.valid_to) > (p.epoch, p.revision)`); n > 0 {
				t.Fatalf("%d peaks are untrue", n)
			}
		})
	if peaks, states := count(`SELECT count(*) FROM peaks`), count(`SELECT count(*) FROM states`); peaks < states/20 {
		t.Errorf("%d peaks of %d states", peaks, states)
	}
}
