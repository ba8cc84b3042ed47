package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
	sinktest.TestHistory(t, postgres.New(url, postgres.Options{}), snapshotOf(t, url))
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
	gaps := server.URL("history_gaps")
	t.Run("gaps", func(t *testing.T) {
		sinktest.TestGapTimes(t, postgres.New(gaps, postgres.Options{}), snapshotOf(t, gaps))
	})
	// The tables get a newer format while the list of the last gap is not complete: its end stays open.
	server.SQL(`ALTER TABLE history_gaps.gaps DROP COLUMN began, DROP COLUMN ended; ALTER TABLE history_gaps.keepwatch DROP COLUMN thinned; DROP TABLE history_gaps.thinning; DROP INDEX history_gaps.resources_aged;
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

	history, err := postgres.OpenHistory(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer history.Close()
	status := func() error {
		return history.Snapshot(t.Context(), func(tables sink.Snapshot) error {
			_, err := tables.Status(t.Context())
			return err
		})
	}
	if err := status(); err != nil {
		t.Fatal(err)
	}
	server.SQL(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%FROM cursors%'`)
	if err := errors.Join(status(), status()); err != nil && status() != nil {
		t.Errorf("after the connection has ended: %v", err)
	}
	server.SQL(`ALTER TABLE history.gaps DROP COLUMN began, DROP COLUMN ended; DROP TABLE history.types; DROP INDEX history.resources_from, history.resources_to; UPDATE history.keepwatch SET format = 3;
		ALTER TABLE history.cursors DROP COLUMN first_epoch, DROP COLUMN first_revision, DROP COLUMN first_seen`)
	// Also with the connection from before: a sync of another version may change the tables meanwhile.
	if err := status(); err != nil {
		t.Errorf("tables that have changed: %v", err)
	}
	snapshotOf(t, url)(func(tables sink.Snapshot) error {
		all, err := tables.Status(t.Context())
		types, err2 := tables.Types(t.Context())
		if err != nil || err2 != nil || len(types) != 0 || all[2].First != (sink.Point{Revision: 20}) {
			t.Errorf("an older format: %+v, %+v, %v, %v", all, types, err, err2)
		}
		return nil
	})
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

// testNoHistory refuses what is no history, with one line.
func testNoHistory(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("future"), postgres.Options{})
	open(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	server.SQL(`UPDATE future.keepwatch SET format = 99; CREATE SCHEMA foreigner; CREATE TABLE foreigner.resources (x int)`)
	for name, row := range map[string]struct{ url, want string }{
		"a newer format": {server.URL("future"), "use a newer keepwatch"},
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
