package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
)

// logBound is the length of the write-ahead log from which on tests make it short: a few commits.
const logBound = 1 << 20

// logged is a sink whose commits add some 300 KB to the write-ahead log.
type logged struct {
	*sqlite.Sink
	path string
	at   keepwatch.Revision
}

func newLogged(t *testing.T) *logged {
	l := &logged{path: filepath.Join(t.TempDir(), "state.db")}
	l.Sink = sqlite.New(l.path, sqlite.Options{})
	l.SetLog(logBound)
	open(t, l.Sink)
	return l
}

// commit commits a batch, and returns the length of the log after it.
func (l *logged) commit(t *testing.T) int64 {
	t.Helper()
	var messages []stream.Message
	for range 20 {
		kind := keepwatch.Modified
		if l.at++; l.at == 1 {
			kind = keepwatch.Added
		}
		messages = append(messages, stored(kind, "web", l.at))
	}
	if err := write(t, l.Sink, 1, l.at, time.Now(), messages...); err != nil {
		t.Fatal(err)
	}
	file, err := os.Stat(l.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return file.Size()
}

// beginReading begins a transaction that reads the newest state.
func beginReading(ctx context.Context, db *sql.DB) (*sql.Tx, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	var n int
	return tx, tx.QueryRowContext(ctx, `SELECT count(*) FROM cursors`).Scan(&n)
}

// TestLogBesideReaders checks that the write-ahead log stays short although somebody reads at each moment: each reader
// ends after the next one has begun.
func TestLogBesideReaders(t *testing.T) {
	l := newLogged(t)
	db, done, ended := read(t, l.path), make(chan struct{}), make(chan error, 1)
	first, err := beginReading(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		reader := first
		for {
			next, err := beginReading(t.Context(), db)
			if err = errors.Join(err, reader.Rollback()); err != nil {
				ended <- err
				return
			}
			select {
			case <-done:
				ended <- next.Rollback()
				return
			default:
			}
			reader = next
		}
	}()
	longest := int64(0)
	for range 60 {
		longest = max(longest, l.commit(t))
	}
	close(done)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if longest > 3*logBound {
		t.Errorf("the log has had %d bytes", longest)
	}
	checkTexts(t, l.path, db, int(l.at))
}

// TestLogBesideALongRead commits beside a reader that reads on for longer than the sink waits. The log becomes short
// after its end.
func TestLogBesideALongRead(t *testing.T) {
	if testing.Short() {
		t.Skip("the sink waits for 10 s")
	}
	t.Parallel()
	l := newLogged(t)
	reader, err := beginReading(t.Context(), read(t, l.path))
	if err != nil {
		t.Fatal(err)
	}
	long := int64(0)
	for long <= logBound {
		long = l.commit(t)
	}
	long = l.commit(t) // waits for nobody
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	size := l.commit(t)
	for before := size; size >= before; size = l.commit(t) {
		if before = size; size > 3*long {
			t.Fatalf("the log has %d bytes, and had %d when the reader ended", size, long)
		}
	}
}
