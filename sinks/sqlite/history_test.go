package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// snapshot reads one state of the tables.
func snapshot(t *testing.T, path string, read func(sink.Snapshot) error) {
	t.Helper()
	history, err := sqlite.OpenHistory(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(history.Snapshot(t.Context(), read), history.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestHistory reads the past while the file is open for writing.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	sinktest.TestHistory(t, sqlite.New(path, sqlite.Options{}), func(read func(sink.Snapshot) error) {
		snapshot(t, path, read)
	})
}

// TestHistoryBeginsLater moves the beginning of the history when retention deletes states.
func TestHistoryBeginsLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	sinktest.TestHistoryBeginsLater(t, sqlite.New(path, sqlite.Options{Retention: time.Hour}),
		func(read func(sink.Snapshot) error) { snapshot(t, path, read) })
}

// TestRetentionOfTypes deletes the states of each type after a time of its own.
func TestRetentionOfTypes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{Retention: 3 * time.Hour, RetentionOf: sinktest.RetentionOfTypes})
	sinktest.TestRetentionOfTypes(t, s, func(read func(sink.Snapshot) error) { snapshot(t, path, read) })
}

// TestRetentionOfRewritten deletes what is old although rows of earlier revisions have ended later.
func TestRetentionOfRewritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{RetentionOf: sinktest.RetentionOfTypes})
	s.SetSweep(2)
	sinktest.TestRetentionOfRewritten(t, s, func(read func(sink.Snapshot) error) { snapshot(t, path, read) })
}

// TestGapTimes has the times between which the state is not known.
func TestGapTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	sinktest.TestGapTimes(t, sqlite.New(path, sqlite.Options{}), func(read func(sink.Snapshot) error) {
		snapshot(t, path, read)
	})
}

// TestHistoryOfAnIncompleteList does not take the end of a deleted state for the beginning of the history.
func TestHistoryOfAnIncompleteList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	sinktest.TestHistoryOfAnIncompleteList(t, sqlite.New(path, sqlite.Options{Retention: time.Hour}),
		func(read func(sink.Snapshot) error) { snapshot(t, path, read) })
}

// TestOlderHistory reads tables of a format that had no types, and whose history begins at the last gap.
func TestOlderHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	open(t, s)
	if err := errors.Join(write(t, s, 1, 5, time.Now(), event(keepwatch.Added, "a", 5), stream.Synced{Revision: 5,
		Count: 1}), s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, path).Exec(undoSixth + `UPDATE keepwatch SET format = 2;` + undoThird); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	snapshot(t, path, func(tables sink.Snapshot) error {
		status, err := tables.Status(t.Context())
		types, err2 := tables.Types(t.Context())
		if err != nil || err2 != nil || len(types) != 0 || status[2].First.Revision != 5 {
			t.Errorf("%+v, %+v, %v, %v", status, types, err, err2)
		}
		return nil
	})
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("reading has changed the file: %v", err)
	}
}

// TestOpenGapOfAnOlderFormat does not end a gap whose list is not complete when the tables get a newer format: its end
// is that of the list.
func TestOpenGapOfAnOlderFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	open(t, s)
	begin := time.Now().UTC().Truncate(time.Millisecond)
	at := func(minutes int) time.Time { return begin.Add(time.Duration(minutes) * time.Minute) }
	first, second := stream.Gap{From: 5, To: 9, Reason: keepwatch.GapExpired}, stream.Gap{From: 9, To: 20,
		Reason: keepwatch.GapExpired}
	progress := sink.Progress{}
	commit := func(count uint64, cursor keepwatch.Revision, now time.Time, messages ...stream.Message) {
		t.Helper()
		p := stream.Piece{Messages: messages, Cursor: cursor, Count: count, Position: []byte(`{}`)}
		piece := sink.Piece{Piece: p, Before: progress, After: progress.After(p)}
		if err := s.Write(t.Context(), sink.Batch{Time: now, Pieces: []sink.Piece{piece}}); err != nil {
			t.Fatal(err)
		}
		progress = piece.After
	}
	commit(1, 5, at(0), event(keepwatch.Added, "a", 5), stream.Synced{Revision: 5, Count: 1})
	commit(1, 9, at(10), first, stream.Synced{Revision: 9, Count: 1})
	commit(1, 9, at(20), second)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, path).Exec(undoSixth + `UPDATE keepwatch SET format = 2;` + undoThird); err != nil {
		t.Fatal(err)
	}
	gaps := func(want ...time.Time) {
		t.Helper()
		snapshot(t, path, func(tables sink.Snapshot) error {
			all, err := tables.Gaps(t.Context())
			if err != nil || len(all) != 2 || !all[0].Ended.Equal(want[0]) || !all[1].Ended.Equal(want[1]) {
				t.Errorf("%+v, %v, want the ends %v", all, err, want)
			}
			return nil
		})
	}
	open(t, s)
	gaps(at(10), time.Time{})
	commit(1, 20, at(25), stream.Synced{Revision: 20, Count: 1})
	gaps(at(10), at(25))
}

// TestNoHistory refuses what is no history, with one line.
func TestNoHistory(t *testing.T) {
	dir := t.TempDir()
	sound := filepath.Join(dir, "sound")
	s := sqlite.New(sound, sqlite.Options{})
	open(t, s)
	for i := range keepwatch.Revision(100) {
		if err := write(t, s, uint64(i)+1, i+1, time.Now(), event(keepwatch.Added, fmt.Sprint(i), i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(sound)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	newer, foreign := file("newer", content), filepath.Join(dir, "foreign")
	for path, statement := range map[string]string{newer: `UPDATE keepwatch SET format = 99`,
		foreign: `CREATE TABLE resources (x)`} {
		if _, err := read(t, path).Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	damaged := bytes.Clone(content)
	for i := 100; i < len(damaged); i++ {
		damaged[i] ^= 0x55
	}
	for name, row := range map[string]struct{ path, want string }{
		"a newer format": {newer, "use a newer keepwatch"},
		"other tables":   {foreign, "it has no tables of keepwatch sync"},
		"nothing":        {file("empty", nil), "it has no tables of keepwatch sync"},
		"text":           {file("text", []byte(strings.Repeat("no database\n", 500))), "file is not a database"},
		"damaged pages":  {file("damaged", damaged), "malformed"},
		"half of a file": {file("half", content[:len(content)/2]), "malformed"},
		"a directory":    {dir, "it is a directory"},
		"no file":        {filepath.Join(dir, "missing"), "no such file"},
	} {
		history, err := sqlite.OpenHistory(t.Context(), row.path)
		if err == nil {
			err = history.Snapshot(t.Context(), func(tables sink.Snapshot) error {
				_, err := tables.Status(t.Context())
				return errors.Join(err, tables.States(t.Context(), sink.StateQuery{Resource: "pods"}, func(sink.State) error {
					return nil
				}))
			})
			err = errors.Join(err, history.Close())
		}
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading has created a file: %v", err)
	}
}

// TestHistoryOfAnotherFile reads no file but the one that was opened: what was read of that one is in memory.
func TestHistoryOfAnotherFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	begin := func(at keepwatch.Revision) {
		s := sqlite.New(path, sqlite.Options{})
		open(t, s)
		if err := errors.Join(write(t, s, 1, at, time.Now(), event(keepwatch.Added, "a", at), stream.Synced{Revision: at,
			Count: 1}), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	begin(5)
	h, err := sqlite.OpenHistory(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	reads := func(when string) {
		t.Helper()
		if err := h.Snapshot(t.Context(), func(tables sink.Snapshot) error {
			all, err := tables.Status(t.Context())
			if err != nil || all[2].Progress.Cursor != 5 {
				t.Errorf("%s: %+v, %v, want 5", when, all, err)
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	refuses := func(when string) {
		t.Helper()
		err := h.Snapshot(t.Context(), func(sink.Snapshot) error {
			t.Errorf("%s: it is read", when)
			return nil
		})
		if !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), "deleted or replaced") ||
			!strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", when, err)
		}
	}
	move := func(suffix string, back bool) {
		t.Helper()
		for _, file := range []string{path, path + "-wal", path + "-shm"} {
			from, to := file, file+suffix
			if back {
				from, to = to, from
			}
			if err := os.Rename(from, to); errors.Is(err, os.ErrNotExist) {
				continue
			} else if err != nil {
				t.Skip("a file that is open cannot be renamed:", err) // on Windows
			}
		}
	}
	reads("at first")
	move(".old", false)
	refuses("renamed")
	move(".old", true)
	reads("back again")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	refuses("deleted")
	begin(211)
	refuses("replaced")
	move(".new", false)
	refuses("replaced and deleted")
}

// TestHistoryIsHeld tells a file from one that was deleted before, whose number it would get if that were not open.
func TestHistoryIsHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	open(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := sqlite.OpenHistory(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h.CloseIdle()
	if err := os.Remove(path); err != nil {
		t.Skip("a file that is open cannot be deleted:", err) // on Windows
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Snapshot(t.Context(), func(sink.Snapshot) error { return nil }); !errors.As(err, new(*sink.Unavailable)) {
		t.Errorf("another file is read: %v", err)
	}
}

// TestPlans reads states by the indexes of what a query selects, and never all of a resource.
func TestPlans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	if _, err := s.Open(t.Context(), sinktest.Streams()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := sqlite.OpenHistory(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	const (
		current = "SEARCH states USING INDEX resources_current (resource=?)"
		begun   = "SEARCH states USING INDEX resources_from (resource=? AND (epoch,valid_from)>(?,?) AND (epoch,valid_from)<(?,?))"
		since   = "SEARCH states USING INDEX resources_to (resource=? AND (to_epoch,valid_to)>(?,?))"
		ended   = "SEARCH states USING INDEX resources_to (resource=? AND (to_epoch,valid_to)>(?,?) AND (to_epoch,valid_to)<(?,?))"
		named   = "SEARCH states USING INDEX resources_history (resource=? AND namespace=? AND name=?)"
	)
	early, late := &sink.Point{Revision: 10}, &sink.Point{Revision: 20}
	hundreds := make([]string, 256)
	for _, row := range []struct {
		query sink.StateQuery
		want  []string
	}{
		{sink.StateQuery{At: early}, []string{current, since}},
		{sink.StateQuery{At: early, NotAt: late}, []string{ended}},
		{sink.StateQuery{At: late, NotAt: early}, []string{begun}},
		{sink.StateQuery{At: late, NotAt: early, Namespace: "ns"}, []string{begun}},
		{sink.StateQuery{After: early, UpTo: late}, []string{begun, ended}},
		{sink.StateQuery{Namespace: "ns", Name: "a"}, []string{named}},
		{sink.StateQuery{Namespace: "ns", Name: "a", After: early, UpTo: late}, []string{named}},
		{sink.StateQuery{Namespace: "ns", Names: hundreds, After: early, UpTo: late}, []string{named}},
	} {
		row.query.Resource = "pods"
		plans, err := h.Plans(t.Context(), row.query)
		if err != nil {
			t.Fatal(err)
		}
		searches := slices.DeleteFunc(plans[0], func(step string) bool {
			return !strings.HasPrefix(step, "SEARCH") && !strings.HasPrefix(step, "SCAN")
		})
		if !slices.Equal(searches, row.want) {
			t.Errorf("%+v: %q, want %q", row.query, searches, row.want)
		}
	}
}

// TestPointAt finds the point of a time by the peaks as by a look at each state.
func TestPointAt(t *testing.T) {
	for _, options := range []sqlite.Options{{}, {Retention: time.Hour}} {
		for range 3 {
			path := filepath.Join(t.TempDir(), "state.db")
			s := sqlite.New(path, options)
			s.SetPeaks(5)
			sinktest.TestPointAt(t, s, rand.Uint64(), func(read func(sink.Snapshot) error) { snapshot(t, path, read) })
			var peaks int
			if err := read(t, path).QueryRow(`SELECT count(*) FROM peaks`).Scan(&peaks); err != nil || peaks < 10 {
				t.Errorf("%d peaks, %v", peaks, err)
			}
		}
	}
}

// untrue counts peaks after which something is that was stored before them.
const untrue = `SELECT count(*) FROM peaks p JOIN states s ON s.resource = p.resource
	WHERE s.seen_from < p.seen AND (s.epoch, s.valid_from) > (p.epoch, p.revision)
		OR s.seen_to < p.seen AND (s.to_epoch, s.valid_to) > (p.epoch, p.revision)`

// TestFillPeaks fills the peaks of a file of format 7, a few rows with each batch, by a clock that jumps. No peak is
// untrue at any time, and a process that continues reads a few rows again.
func TestFillPeaks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	s.SetPeaks(5)
	s.SetFill(7)
	db := read(t, path)
	count := func(query string) (n int) {
		t.Helper()
		if err := db.QueryRow(query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	sinktest.TestFillPeaks(t, s, rand.Uint64(), func(read func(sink.Snapshot) error) { snapshot(t, path, read) },
		func() {
			if _, err := db.Exec(`DROP TABLE peaks; UPDATE keepwatch SET format = 7`); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			if n := count(untrue); n > 0 {
				t.Fatalf("%d peaks are untrue", n)
			}
		})
	if peaks, states := count(`SELECT count(*) FROM peaks`), count(`SELECT count(*) FROM states`); peaks < states/20 {
		t.Errorf("%d peaks of %d states", peaks, states)
	}
}
