package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// thing is an object with an empty body.
type thing struct {
	name     string
	revision keepwatch.Revision
}

func (o *thing) Key() keepwatch.Key           { return keepwatch.Key{Namespace: "ns", Name: o.name} }
func (o *thing) UID() keepwatch.UID           { return keepwatch.UID("uid-" + o.name) }
func (o *thing) Revision() keepwatch.Revision { return o.revision }
func (o *thing) JSON() []byte                 { return []byte(`{}`) }
func (o *thing) Metadata() []byte             { return []byte(`{}`) }

func event(kind keepwatch.ChangeType, name string, at keepwatch.Revision) stream.Event {
	return stream.Event{Type: kind, Revision: at, Object: &thing{name, at}}
}

// write commits a batch with one piece of the first stream.
func write(t *testing.T, s *sqlite.Sink, count uint64, at keepwatch.Revision, now time.Time,
	messages ...stream.Message) error {
	t.Helper()
	p := stream.Piece{Messages: messages, Cursor: at, Count: count, Position: fmt.Appendf(nil, `{"cursor":%d,"count":%d}`,
		at, count)}
	return s.Write(t.Context(), sink.Batch{Time: now.UTC().Truncate(time.Millisecond),
		Pieces: []sink.Piece{{Piece: p, After: sink.Progress{}.After(p)}}})
}

func open(t *testing.T, s *sqlite.Sink) []sink.Stored {
	t.Helper()
	stored, err := s.Open(t.Context(), sinktest.Streams())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return stored
}

// TestStored reads what was written, by the next open and beside a writer.
func TestStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a file with spaces?&#.db")
	s := sqlite.New(path, sqlite.Options{})
	now := time.Now()
	open(t, s)
	if err := write(t, s, 1, 5, now, event(keepwatch.Added, "a", 5), stream.Synced{Revision: 5, Count: 1}); err != nil {
		t.Fatal(err)
	}
	status, err := sqlite.New(path, sqlite.Options{}).Status(t.Context())
	if err != nil || len(status) != 4 || status[2].Count != 1 || !status[2].Active || status[2].Progress.Since != 5 ||
		now.Sub(status[2].Time).Abs() > time.Second {
		t.Errorf("%+v, %v", status, err)
	}
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.New(link, sqlite.Options{}).Open(t.Context(), nil); err == nil ||
		!strings.Contains(err.Error(), "it is in use by another keepwatch sync") {
		t.Errorf("a link to it: %v", err)
	}
	if _, err := sqlite.New(path, sqlite.Options{}).Open(t.Context(), nil); err == nil ||
		!strings.Contains(err.Error(), "it is in use by another keepwatch sync") {
		t.Errorf("a second writer: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the write-ahead log after Close: %v", err)
	}
	stored := open(t, s)
	want := []stream.Entry{{Key: keepwatch.Key{Namespace: "ns", Name: "a"}, UID: "uid-a", Revision: 5}}
	if e := slices.Collect(stored[0].Entries.All()); !slices.Equal(e, want) {
		t.Errorf("stored: %+v", stored[0])
	}
	if stored[0].Progress != (sink.Progress{Cursor: 5, Since: 5}) ||
		string(stored[0].Position) != `{"cursor":5,"count":1}` {
		t.Errorf("stored: %+v", stored[0])
	}
	if err := write(t, s, 1, 6, now, event(keepwatch.Modified, "b", 6)); err == nil ||
		!strings.Contains(err.Error(), "pods: ns/b: the row to change is missing") {
		t.Errorf("an update of nothing: %v", err)
	}
}

// TestRedefined replaces a row by another content of the same revision, over a restart. Format 1 has no sums.
func TestRedefined(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s := sqlite.New(path, sqlite.Options{})
	now := time.Now()
	wantSum := func(want uint64) {
		t.Helper()
		stored := slices.Collect(open(t, s)[0].Entries.All())
		if len(stored) != 1 || stored[0].Revision != 5 || stored[0].Rendition.Sum != want {
			t.Fatalf("stored: %+v", stored)
		}
	}
	content := func(kind keepwatch.ChangeType, sum uint64) stream.Event {
		e := event(kind, "a", 5)
		e.Rendition.Sum = sum
		return e
	}
	open(t, s)
	const first = 1<<63 + 7 // SQLite's integers have a sign
	err := errors.Join(
		write(t, s, 1, 5, now, content(keepwatch.Added, first), stream.Synced{Revision: 5, Count: 1}), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	wantSum(first)
	if err := errors.Join(write(t, s, 1, 9, now, content(keepwatch.Modified, 3)), s.Close()); err != nil {
		t.Fatal(err)
	}
	wantSum(3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows string
	const all = "SELECT group_concat(valid_from || '-' || coalesce(valid_to, ''), ', ' ORDER BY id) FROM resources"
	if err := db.QueryRow(all).Scan(&rows); err != nil || rows != "5-5, 5-" {
		t.Errorf("rows %s, %v", rows, err)
	}
	const makeFirst = undoSixth + `ALTER TABLE resources DROP COLUMN sum; UPDATE keepwatch SET format = 1;` + undoThird
	if _, err := db.Exec(makeFirst); err != nil {
		t.Fatal(err)
	}
	wantSum(0)
}

// undoSixth removes what formats 6 to 8 have added.
const undoSixth = `DROP TABLE peaks; DROP TABLE thinning; DROP INDEX states_aged; DROP VIEW resources; PRAGMA legacy_alter_table = ON; ALTER TABLE states RENAME TO resources; PRAGMA legacy_alter_table = OFF;
	DROP INDEX states_base; ALTER TABLE resources DROP COLUMN base; DROP TABLE bases; ALTER TABLE keepwatch DROP COLUMN compressed; ALTER TABLE keepwatch DROP COLUMN compressed_id;`

// undoThird removes what formats 3 to 5 have added.
const undoThird = `DROP INDEX gaps_thinned; ALTER TABLE keepwatch DROP COLUMN thinned; DROP INDEX gaps_open; ALTER TABLE gaps DROP COLUMN began; ALTER TABLE gaps DROP COLUMN ended; DROP TABLE types; DROP INDEX resources_from; DROP INDEX resources_to; ALTER TABLE cursors DROP COLUMN first_epoch; ALTER TABLE cursors DROP COLUMN first_revision;
	ALTER TABLE cursors DROP COLUMN first_seen`

// TestRetention checks that ended rows are deleted after the retention, and current ones never.
func TestRetention(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s := sqlite.New(path, sqlite.Options{Retention: time.Hour})
	open(t, s)
	now := time.Now()
	err := errors.Join(
		write(t, s, 2, 2, now.Add(-3*time.Hour), event(keepwatch.Added, "a", 1), event(keepwatch.Added, "b", 2)),
		write(t, s, 1, 4, now.Add(-2*time.Hour), event(keepwatch.Modified, "a", 3), event(keepwatch.Deleted, "b", 4)),
		write(t, s, 1, 5, now.Add(-time.Minute), event(keepwatch.Modified, "a", 5)),
		write(t, s, 1, 6, now),
		write(t, s, 1, 7, now.AddDate(10, 0, 0)), // the clock jumps, and nothing is older for it
	)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	row := read(t,
		path).QueryRow(`SELECT group_concat(name || valid_from, ' ') FROM (SELECT * FROM resources ORDER BY id)`)
	if err := row.Scan(&got); err != nil || got != "a3 a5" {
		t.Errorf("the rows are %q, %v", got, err)
	}
}

// TestRefused checks files that are refused, and not changed.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	newer, foreign, deleted := filepath.Join(dir, "newer"), filepath.Join(dir, "foreign"), filepath.Join(dir, "deleted")
	s := sqlite.New(newer, sqlite.Options{})
	open(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for path, statement := range map[string]string{newer: `UPDATE keepwatch SET format = 99`,
		foreign: `CREATE TABLE resources (x)`} {
		if _, err := read(t, path).Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database\n", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	other := sinktest.Streams()
	other[1].ID.Cluster.UID = "another"
	narrower := sinktest.Streams()[:1]
	narrower[0].ID.Namespace = "ns"
	sound := filepath.Join(dir, "sound")
	s = sqlite.New(sound, sqlite.Options{})
	open(t, s)
	if err := write(t, s, 1, 1, time.Now(), event(keepwatch.Added, "a", 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		path    string
		streams []sink.Stream
		want    string
	}{
		"a newer format": {newer, sinktest.Streams(),
			"the tables have format 99, and this keepwatch knows formats up to 8: use a newer keepwatch"},
		"other tables": {foreign, sinktest.Streams(), "table resources already exists"},
		"damaged": {text, sinktest.Streams(), "file is not a database (26); if it was copied from a backup, copy it again, " +
			"while no sync runs, and delete " + text + "-wal and " + text + "-shm before"},
		"other namespaces": {sound, narrower, "pods: it has these objects already, of another choice of namespaces"},
		"another cluster":  {sound, other, "it has the objects of "},
	} {
		_, err := sqlite.New(row.path, sqlite.Options{}).Open(t.Context(), row.streams)
		if err == nil || errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	s = sqlite.New(deleted, sqlite.Options{})
	open(t, s)
	if err := os.Remove(deleted); err != nil {
		t.Fatal(err)
	}
	if err := write(t, s, 1, 1, time.Now(), event(keepwatch.Added, "a", 1)); err == nil ||
		!strings.Contains(err.Error(), "it was deleted or replaced while it was in use") {
		t.Errorf("a deleted file: %v", err)
	}
	s.Close()
	if _, err := s.Open(t.Context(), sinktest.Streams()); err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "it was deleted or replaced while it was in use") {
		t.Errorf("a file that was deleted before another attempt: %v", err)
	}
}

// TestClusters opens a file for several clusters.
func TestClusters(t *testing.T) {
	sinktest.TestClusters(t, sqlite.New(filepath.Join(t.TempDir(), "state.db"), sqlite.Options{}))
}

// BenchmarkPods writes pods of a large cluster; see [sinktest.Benchmark].
func BenchmarkPods(b *testing.B) {
	n := 0
	dir := b.TempDir()
	sinktest.Benchmark(b, 5000, func() sink.Sink {
		n++
		return sqlite.New(filepath.Join(dir, fmt.Sprint(n)), sqlite.Options{})
	})
}

// TestOneTransaction checks that rows, gaps and cursors of a batch are stored together.
func TestOneTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := create(t, path)
	t.Cleanup(func() { s.Close() })
	db := read(t, path)
	sinktest.TestOneTransaction(t, s, db, 3, func(change, table string) func() {
		return refuse(t, db, change, table)
	})
}

// refuse makes the database refuse changes of a table.
func refuse(t *testing.T, db *sql.DB, change, table string) (allow func()) {
	execute := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if table == "resources" {
		table = "states" // which that view reads
	}
	execute(fmt.Sprintf(`CREATE TRIGGER refused BEFORE %s ON %s BEGIN SELECT RAISE(ABORT, 'refused'); END`, change, table))
	return func() { execute(`DROP TRIGGER refused`) }
}

// TestAsOf checks that each object has one state at every revision.
func TestAsOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := create(t, path)
	t.Cleanup(func() { s.Close() })
	sinktest.TestAsOf(t, s, read(t, path), 3)
}

// TestReaders reads the file while sinks open and close it. SQLite locks it for the moment in which the last connection
// closes, and for that in which the first one opens it: readers that wait succeed.
func TestReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := create(t, path)
	read := func() error {
		db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(60000)")
		if err != nil {
			return err
		}
		var n int
		_, status := sqlite.New(path, sqlite.Options{}).Status(t.Context())
		return errors.Join(status, db.QueryRow(`SELECT count(*) FROM objects`).Scan(&n), db.Close())
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				if err := read(); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	defer readers.Wait()
	defer close(done)
	for at := range keepwatch.Revision(20) {
		open(t, s)
		if err := errors.Join(write(t, s, uint64(at+1), at+1, time.Now(), event(keepwatch.Added, fmt.Sprint(at), at+1)),
			s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNames stores, changes and deletes objects whose names are any text, as those of RBAC are.
func TestNames(t *testing.T) {
	s := sqlite.New(filepath.Join(t.TempDir(), "state.db"), sqlite.Options{})
	open(t, s)
	names := []string{"plain", "nul\x00", "nul\x00b", "line\nbreak", "ünï☃", `quote ' "`, strings.Repeat("long", 20_000)}
	for at, kind := range []keepwatch.ChangeType{keepwatch.Added, keepwatch.Modified, keepwatch.Deleted} {
		var messages []stream.Message
		for _, name := range names {
			messages = append(messages, event(kind, name, keepwatch.Revision(5+at)))
		}
		want := names
		if kind == keepwatch.Deleted {
			want = nil
		}
		if err := write(t, s, uint64(len(want)), keepwatch.Revision(5+at), time.Now(), messages...); err != nil {
			t.Fatal(err)
		}
		s.Close()
		var found []string
		for e := range open(t, s)[0].Entries.All() {
			found = append(found, e.Key.Name)
		}
		slices.Sort(found)
		if !slices.Equal(found, slices.Sorted(slices.Values(want))) {
			t.Errorf("%v: %.200q", kind, found)
		}
	}
}
