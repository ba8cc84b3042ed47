package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// stateOf returns a text of 4 KB that differs little from that at another revision.
func stateOf(name string, at keepwatch.Revision) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"%d","annotations":{"note":"Größe 日本 \u0000 \"x\""}},
	"spec":{%s},"status":{"count":%d}}`, name, at, strings.Repeat(`"image":"registry.example.com/shop/web:1.27",`, 90), at)
}

func stored(kind keepwatch.ChangeType, name string, at keepwatch.Revision) stream.Event {
	return stream.Event{Type: kind, Revision: at, Object: &deployment{thing{name, at}, stateOf(name, at)}}
}

// compressedSizes returns how many states are compressed, their bytes, and the number and bytes of their bases.
func compressedSizes(t *testing.T, db *sql.DB) (states, bytes, bases, ofBases int) {
	t.Helper()
	err := db.QueryRow(`SELECT count(base), coalesce(sum(length(object)) FILTER (WHERE base IS NOT NULL), 0),
		(SELECT count(*) FROM bases), (SELECT coalesce(sum(length(object)), 0) FROM bases) FROM states`).
		Scan(&states, &bytes, &bases, &ofBases)
	if err != nil {
		t.Fatal(err)
	}
	return states, bytes, bases, ofBases
}

// checkTexts compares the objects that SQL and the history read with those that were written.
func checkTexts(t *testing.T, path string, db *sql.DB, want int) {
	t.Helper()
	rows, err := db.Query(`SELECT name, valid_from, object FROM resources`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := 0
	for ; rows.Next(); found++ {
		var name, object string
		var at int64
		if err := rows.Scan(&name, &at, &object); err != nil {
			t.Fatal(err)
		}
		if object != stateOf(name, keepwatch.Revision(at)) {
			t.Errorf("SQL reads %s at %d as %s", name, at, object)
		}
	}
	if found != want || rows.Err() != nil {
		t.Errorf("%d rows, %v", found, rows.Err())
	}
	snapshot(t, path, func(tables sink.Snapshot) error {
		return tables.States(t.Context(), sink.StateQuery{Resource: "pods"}, func(s sink.State) error {
			if found--; string(s.Object) != stateOf(s.Key.Name, s.From.Revision) {
				t.Errorf("the history has %s at %d as %s", s.Key, s.From.Revision, s.Object)
			}
			return nil
		})
	})
	if found != 0 {
		t.Errorf("the history has %d states more or less", found)
	}
}

// TestCompress checks that states that ended more than an hour ago take a small part of their size, over restarts, that
// SQL and the history read them as they were, and that their bases are deleted with them.
func TestCompress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{Retention: 24 * time.Hour})
	open(t, s)
	db := read(t, path)
	at, begin := keepwatch.Revision(0), time.Now().Add(-30*time.Hour)
	commit := func(count uint64, now time.Time, kind keepwatch.ChangeType, names ...string) {
		t.Helper()
		var messages []stream.Message
		for _, name := range names {
			at++
			messages = append(messages, stored(kind, name, at))
		}
		if err := write(t, s, count, at, now, messages...); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"web-a1", "web-b2", "other"}
	commit(3, begin, keepwatch.Added, names...)
	for i := range 100 {
		commit(3, begin.Add(time.Duration(i)*time.Minute), keepwatch.Modified, names...)
		if i == 50 {
			s.Close()
			open(t, s)
		}
	}
	commit(0, begin.Add(100*time.Minute), keepwatch.Deleted, names...)
	commit(2, begin.Add(101*time.Minute), keepwatch.Added, "web-c3", "young")
	for i := range 10 {
		commit(2, begin.Add(5*time.Hour+time.Duration(i)*time.Minute), keepwatch.Modified, "young")
	}
	states, bytes, bases, ofBases := compressedSizes(t, db)
	t.Logf("%d states have %d bytes, and %d bases %d", states, bytes, bases, ofBases)
	if states != 303 || bytes+ofBases > states*4000*8/100 {
		t.Errorf("%d states have %d bytes, and %d bases %d", states, bytes, bases, ofBases)
	}
	checkTexts(t, path, db, 303+2+10)

	// Those that are deleted release their bases.
	for i := range 3 {
		commit(2, time.Now().Add(time.Duration(i-4)*time.Minute), keepwatch.Modified, "young")
	}
	states, _, bases, _ = compressedSizes(t, db)
	if states != 0 || bases != 0 {
		t.Errorf("after the retention, %d states are compressed, and there are %d bases", states, bases)
	}
	checkTexts(t, path, db, 5)
}

// TestCompressOld opens a file of format 5, with a view of its user. Its states are compressed, and the view reads
// them.
func TestCompressOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	open(t, s)
	now := time.Now()
	err := write(t, s, 1, 1, now.Add(-3*time.Hour), stored(keepwatch.Added, "web", 1))
	for at := range keepwatch.Revision(20) {
		err = errors.Join(err, write(t, s, 1, at+2, now.Add(-2*time.Hour), stored(keepwatch.Modified, "web", at+2)))
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	db := read(t, path)
	if _, err := db.Exec(undoSixth + `UPDATE keepwatch SET format = 5;
		CREATE VIEW mine AS SELECT valid_from, object FROM resources`); err != nil {
		t.Fatal(err)
	}
	checkTexts(t, path, db, 21)
	open(t, s)
	if err := write(t, s, 1, 30, now); err != nil {
		t.Fatal(err)
	}
	if states, _, bases, _ := compressedSizes(t, db); states != 20 || bases != 1 {
		t.Errorf("%d states are compressed, with %d bases", states, bases)
	}
	checkTexts(t, path, db, 21)
	var object string
	if err := db.QueryRow(`SELECT object FROM mine WHERE valid_from = 5`).Scan(&object); err != nil ||
		object != stateOf("web", 5) {
		t.Errorf("a view of the user reads %s, %v", object, err)
	}
}

// TestCompressRefused checks that a transaction that fails leaves no base behind that later states would need.
func TestCompressRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	s.SetCompress(0, 0)
	open(t, s)
	db := read(t, path)
	now := time.Now().Add(-time.Hour)
	commit := func(at keepwatch.Revision, kind keepwatch.ChangeType) error {
		return write(t, s, 1, at, now.Add(time.Duration(at)*time.Second), stored(kind, "web", at))
	}
	if err := errors.Join(commit(1, keepwatch.Added), commit(2, keepwatch.Modified)); err != nil {
		t.Fatal(err)
	}
	allow := refuse(t, db, "UPDATE", "keepwatch") // the last step of a batch, behind a new base
	if err := commit(3, keepwatch.Modified); err == nil {
		t.Fatal("the batch was not refused")
	}
	allow()
	for at := keepwatch.Revision(3); at < 9; at++ {
		if err := commit(at, keepwatch.Modified); err != nil {
			t.Fatal(err)
		}
	}
	if states, _, bases, _ := compressedSizes(t, db); states != 6 || bases != 1 {
		t.Errorf("%d states are compressed, with %d bases", states, bases)
	}
	checkTexts(t, path, db, 8)
}

// TestCompressDamaged checks that what cannot be read is an error that names the state, and is not answered with
// something else.
// The text of a base does not stay as long as its object: with each deletion of a state of it, it loses those that are
// compressed later.
func TestBasesExpire(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{Retention: 24 * time.Hour})
	open(t, s)
	const hours = 24 * 4
	begin := time.Now().Add(-hours * time.Hour)
	for at := keepwatch.Revision(1); at < hours; at++ {
		kind, text := keepwatch.Modified, stateOf("web", at)
		if at == 1 {
			kind, text = keepwatch.Added, strings.Replace(text, "shop", "secret", 1)
		}
		e := stream.Event{Type: kind, Revision: at, Object: &deployment{thing{"web", at}, text}}
		if err := write(t, s, 1, at, begin.Add(time.Duration(at)*time.Hour), e); err != nil {
			t.Fatal(err)
		}
	}
	var secrets, bases int
	if err := read(t, path).QueryRow(`SELECT count(*) FILTER (WHERE object LIKE '%secret%'), count(*) FROM bases`).
		Scan(&secrets, &bases); err != nil || secrets > 0 || bases == 0 {
		t.Errorf("%d of %d bases have what was deleted days ago, %v", secrets, bases, err)
	}
}

// Many changes of whole states fit, although what is deleted for them is compressed, and smaller.
func TestMaxSizeOfABurst(t *testing.T) {
	const maxSize = 4 << 20
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{MaxSize: maxSize})
	s.SetSweep(10)
	open(t, s)
	db := read(t, path)
	at := keepwatch.Revision(0)
	commit := func(now time.Time, n int) {
		var all []stream.Message
		for range n {
			at++
			kind := keepwatch.Modified
			if at == 1 {
				kind = keepwatch.Added
			}
			all = append(all, stored(kind, "web", at))
		}
		if err := write(t, s, 1, at, now, all...); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now().Add(-1000 * time.Hour)
	for used := int64(0); used < maxSize*9/10; used, _ = size(t, db) {
		commit(now, 100)
		now = now.Add(2 * time.Hour)
		commit(now, 0)
	}
	for range 20 {
		commit(now, 50)
		if used, _ := size(t, db); used > maxSize {
			t.Fatalf("%d bytes are used of %d", used, maxSize)
		}
	}
}

func TestCompressDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	s.SetCompress(0, 0)
	open(t, s)
	now := time.Now().Add(-time.Hour)
	for at := keepwatch.Revision(1); at < 5; at++ {
		kind := keepwatch.Modified
		if at == 1 {
			kind = keepwatch.Added
		}
		if err := write(t, s, 1, at, now.Add(time.Duration(at)*time.Second), stored(kind, "web", at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := read(t, path)
	for _, step := range []struct{ statement, want string }{
		{`UPDATE bases SET object = 'short'`, "a compressed state is damaged"},
		{`DELETE FROM bases`, "the base of the compressed state: sql: no rows in result set"},
	} {
		if _, err := db.Exec(step.statement); err != nil {
			t.Fatal(err)
		}
		past, err := sqlite.OpenHistory(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		err = past.Snapshot(t.Context(), func(tables sink.Snapshot) error {
			return tables.States(t.Context(), sink.StateQuery{Resource: "pods"}, func(sink.State) error { return nil })
		})
		if want := "pods shop/web at revision 1: " + step.want; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if err := past.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// compressingEnv makes this program compress the states of a file until it is killed, and with deletingEnv delete some
// by age and thinning, too.
const (
	compressingEnv = "KEEPWATCH_COMPRESS"
	deletingEnv    = "KEEPWATCH_DELETE"
)

// compressUntilKilled changes a few objects, a batch in ten minutes, prints a line for each batch, and compresses what
// ended.
func compressUntilKilled(path string) error {
	options := sqlite.Options{MaxSize: 400_000}
	if os.Getenv(deletingEnv) != "" {
		options = sqlite.Options{Retention: 6 * time.Hour, Thin: []sink.Thinning{{Age: time.Hour, Interval: time.Hour}},
			MaxSize: 400_000}
	}
	s := sqlite.New(path, options)
	s.SetCompress(0, 0)
	known, err := s.Open(context.Background(), sinktest.Streams())
	if err != nil {
		return err
	}
	at, progress := known[0].Progress.Cursor, known[0].Progress
	exists := map[string]bool{}
	for e := range known[0].Entries.All() {
		exists[e.Key.Name] = true
	}
	for {
		var messages []stream.Message
		for i := range 20 {
			at++
			name, kind := fmt.Sprintf("web-%d", (int(at)+i)%7), keepwatch.Added
			if exists[name] {
				kind = keepwatch.Modified
			}
			exists[name] = true
			messages = append(messages, stored(kind, name, at))
		}
		if progress.Since == 0 {
			messages = append(messages, stream.Synced{Revision: at, Count: uint64(len(exists))})
		}
		p := stream.Piece{Messages: messages, Cursor: at, Count: uint64(len(exists)), Position: []byte(`{}`)}
		before := progress
		progress = progress.After(p)
		now := time.Date(2020, 11, 28, 10, 0, 0, 0, time.UTC).Add(time.Duration(at) * 10 * time.Minute / 20)
		if err := s.Write(context.Background(), sink.Batch{Time: now,
			Pieces: []sink.Piece{{Piece: p, Before: before, After: progress}}}); err != nil {
			return err
		}
		fmt.Println(at)
	}
}

// TestCompressKilled kills a process that compresses. Each state that the next one finds is as it was written.
func TestCompressKilled(t *testing.T) {
	t.Parallel()
	killCompressing(t, filepath.Join(t.TempDir(), "state.db"))
}

// TestDeletingKilled kills one that also deletes by age, by size and by thinning. What is left has no more gaps than
// those that are declared.
func TestDeletingKilled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	killCompressing(t, path, deletingEnv+"=1")
	var thinned, first int
	if err := read(t, path).QueryRow(`SELECT (SELECT count(*) FROM gaps WHERE reason = 'thinned'), max(first_revision)
		FROM cursors`).Scan(&thinned, &first); err != nil || thinned == 0 || first < 100 {
		t.Errorf("%d ranges are thinned out, and the history begins at revision %d, %v", thinned, first, err)
	}
}

func killCompressing(t *testing.T, path string, environment ...string) {
	t.Helper()
	log := path + ".log"
	random := rand.New(rand.NewPCG(*seedFlag, uint64(len(environment))))
	kills := 20
	if testing.Short() {
		kills = 4
	}
	for range kills {
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stdout = append(os.Environ(), append(environment, compressingEnv+"="+path)...), in
		process, err := child.Start(cmd, log)
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 20 + random.IntN(20) { // hours: with few nothing is compressed
			if !lines.Scan() {
				text, _ := os.ReadFile(log)
				t.Fatalf("the process has ended: %s", text)
			}
		}
		process.Kill()
		out.Close()
		db := read(t, path)
		var rows int
		if err := db.QueryRow(`SELECT count(*) FROM states`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if states, _, bases, _ := compressedSizes(t, db); states == 0 || bases == 0 {
			t.Errorf("of %d states, %d are compressed, with %d bases", rows, states, bases)
		}
		checkTexts(t, path, db, rows)
		if wrong, err := (sinktest.Tables{DB: db}).Invariants(t.Context()); err != nil || len(wrong) > 0 {
			t.Errorf("%v, %q", err, wrong)
		}
		var unused int
		if err := db.QueryRow(`SELECT count(*) FROM bases WHERE id NOT IN (SELECT base FROM states WHERE base IS NOT NULL)`).
			Scan(&unused); err != nil || unused != 0 {
			t.Errorf("%d bases are not needed, %v", unused, err)
		}
	}
}
