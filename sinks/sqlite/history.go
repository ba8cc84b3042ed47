package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// History reads the tables of a file, which another process may write meanwhile. It never changes the file, and holds
// up no writer: a snapshot delays only that the write-ahead log becomes shorter. It is safe for concurrent use.
type History struct {
	path string
	gaps history.Gaps

	mu sync.Mutex
	db *sql.DB // nil: closed
	// still is the file when it was opened as one that nobody writes, otherwise nil. SQLite sees no change of such a
	// file.
	still os.FileInfo
}

// OpenHistory opens a file for reading. It returns an error for a file that does not exist, is damaged, or has no
// tables of keepwatch sync or those of a newer one.
func OpenHistory(ctx context.Context, path string) (*History, error) {
	h := &History{path: path}
	if err := h.open(ctx); err != nil {
		return nil, errors.Join(h.failure(err), h.Close())
	}
	return h, nil
}

// open opens the file. The caller holds the lock, or is the only one that has h.
func (h *History) open(ctx context.Context) error {
	file, err := os.Stat(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no such file: give the one that keepwatch sync writes")
	} else if err != nil {
		return err
	}
	if file.IsDir() {
		return errors.New("it is a directory")
	}
	h.still = nil
	if h.db, err = sql.Open("sqlite",
		dataSource(h.path, "mode=ro&_pragma=busy_timeout(10000)&_pragma=query_only(1)")); err != nil {
		return err
	}
	format, err := formatOf(ctx, h.db)
	if reportedCode(err) == cannotOpen && !h.hasLog() {
		// SQLite needs a file beside this one, which a read-only file system refuses. Nobody writes now: a writer has a
		// log.
		_ = h.db.Close() // nothing was read
		if h.db, err = sql.Open("sqlite", dataSource(h.path, "mode=ro&immutable=1&_pragma=query_only(1)")); err != nil {
			return err
		}
		h.still = file
		format, err = formatOf(ctx, h.db)
	}
	h.db.SetMaxOpenConns(maxSnapshots)
	if err != nil {
		return err
	}
	return checkFormat(format)
}

func checkFormat(format int) error {
	if format == 0 {
		return errors.New("it has no tables of keepwatch sync")
	}
	return history.CheckFormat(format, len(migrations))
}

// hasLog reports whether the file has a write-ahead log: a process writes it, or was killed.
func (h *History) hasLog() bool {
	_, err := os.Stat(h.path + "-wal")
	return !errors.Is(err, os.ErrNotExist)
}

// isStill reports whether nobody has written to a file since it was opened.
func (h *History) isStill(still os.FileInfo) bool {
	file, err := os.Stat(h.path)
	return err == nil && os.SameFile(file, still) && file.Size() == still.Size() && file.ModTime().Equal(still.ModTime())
}

// current returns the open file. It opens the file again if that is not the one that failed, or has a writer that
// SQLite does not see. Snapshots of the one before continue.
func (h *History) current(ctx context.Context, failed *sql.DB) (db *sql.DB, still os.FileInfo, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.db == nil {
		return nil, nil, errors.New("it is closed")
	}
	if h.db != failed && (h.still == nil || h.isStill(h.still) && !h.hasLog()) {
		return h.db, h.still, nil
	}
	before, stillBefore := h.db, h.still
	if err = h.open(ctx); err == nil {
		return h.db, h.still, before.Close()
	}
	if h.db != nil && h.db != before {
		err = errors.Join(err, h.db.Close())
	}
	h.db, h.still = before, stillBefore // the next snapshot tries again
	return nil, nil, err
}

// maxSnapshots bounds the snapshots that are read at a time, each on a connection of its own.
const maxSnapshots = 8

// dataSource returns the name of a file with parameters of the driver.
func dataSource(path, query string) string {
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	name := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: query}
	return name.String()
}

// failure adds the path to an error.
func (h *History) failure(err error) error { return (&Sink{path: h.path}).failure(err) }

// Close closes the file.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.db == nil {
		return nil
	}
	err := h.db.Close()
	h.db = nil
	return err
}

// Snapshot calls read with one state of the tables. It is valid until read returns.
func (h *History) Snapshot(ctx context.Context, read func(sink.Snapshot) error) error {
	tables, still, err := h.begin(ctx)
	if err != nil {
		return h.failure(err)
	}
	err = read(tables)
	_ = tables.tx.Rollback() // it has changed nothing
	if err == nil && still != nil && !h.isStill(still) {
		return sink.Unavailablef("SQLite file %s: a process that writes began while the file was read", h.path)
	}
	return err
}

// begin begins a transaction that reads. The writer may end between the opening of the file and this: in a folder that
// is read-only here, the file must be opened in another way then.
func (h *History) begin(ctx context.Context) (*snapshot, os.FileInfo, error) {
	var failed *sql.DB
	for attempt := 1; ; attempt++ {
		db, still, err := h.current(ctx, failed)
		if err != nil {
			return nil, nil, err
		}
		s := &snapshot{history: h}
		if s.tx, err = db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}); err == nil {
			if s.format, err = formatOf(ctx, s.tx); err == nil {
				err = checkFormat(s.format)
			}
			if err == nil {
				return s, still, nil
			}
			_ = s.tx.Rollback() // it has changed nothing
		}
		if closed := h.isClosed(db); attempt == maxAttempts || !closed && reportedCode(err) != cannotOpen {
			return nil, nil, err
		}
		failed = db
	}
}

// maxAttempts bounds how often the file is opened again for one snapshot.
const maxAttempts = 3

// isClosed reports whether another snapshot has closed the file, to open it again.
func (h *History) isClosed(db *sql.DB) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.db != db
}
