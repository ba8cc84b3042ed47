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

	mu   sync.Mutex
	last *opened // nil: closed
}

// opened is a file that was opened for reading.
type opened struct {
	db   *sql.DB
	file os.FileInfo // when it was opened
	// still reports whether it was opened as one that nobody writes. SQLite sees no change of such a file.
	still bool
	gaps  history.Gaps
}

// OpenHistory opens a file for reading. It returns an error for a file that does not exist, is damaged, or has no
// tables of keepwatch sync or those of a newer one.
func OpenHistory(ctx context.Context, path string) (*History, error) {
	h := &History{path: path}
	var err error
	if h.last, err = h.open(ctx); err != nil {
		return nil, h.failure(err)
	}
	return h, nil
}

// open opens the file at the path.
func (h *History) open(ctx context.Context) (*opened, error) {
	file, err := os.Stat(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("there is no such file: give the one that keepwatch sync writes")
	} else if err != nil {
		return nil, err
	}
	if file.IsDir() {
		return nil, errors.New("it is a directory")
	}
	o := &opened{file: file}
	if o.db, err = sql.Open("sqlite",
		dataSource(h.path, "mode=ro&_pragma=busy_timeout(10000)&_pragma=query_only(1)")); err != nil {
		return nil, err
	}
	format, err := formatOf(ctx, o.db)
	if reportedCode(err) == cannotOpen && !h.hasLog() {
		// SQLite needs a file beside this one, which a read-only file system refuses. Nobody writes now: a writer has a
		// log.
		_ = o.db.Close() // nothing was read
		if o.db, err = sql.Open("sqlite", dataSource(h.path, "mode=ro&immutable=1&_pragma=query_only(1)")); err != nil {
			return nil, err
		}
		o.still = true
		format, err = formatOf(ctx, o.db)
	}
	o.db.SetMaxOpenConns(maxSnapshots)
	if err == nil {
		err = checkFormat(format)
	}
	if err != nil {
		return nil, errors.Join(err, o.db.Close())
	}
	return o, nil
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

// isCurrent reports whether a file is the one at the path, and nothing was written to it that SQLite does not see.
func (h *History) isCurrent(o *opened) bool {
	file, err := os.Stat(h.path)
	if err != nil || !os.SameFile(file, o.file) {
		return false // it was deleted or replaced, which SQLite does not see
	}
	return !o.still || file.Size() == o.file.Size() && file.ModTime().Equal(o.file.ModTime())
}

// current returns the open file. It opens the file at the path if that is another one, failed, or has a writer that
// SQLite does not see. Snapshots of the one before continue.
func (h *History) current(ctx context.Context, failed *opened) (*opened, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.last
	switch {
	case before == nil:
		return nil, errors.New("it is closed")
	case before != failed && h.isCurrent(before) && (!before.still || !h.hasLog()):
		return before, nil
	}
	o, err := h.open(ctx)
	if err != nil { // the next snapshot tries again
		return nil, sink.Unavailablef("it cannot be opened again: %w", err)
	}
	h.last = o
	return o, before.db.Close()
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
	if h.last == nil {
		return nil
	}
	err := h.last.db.Close()
	h.last = nil
	return err
}

// Snapshot calls read with one state of the tables. It is valid until read returns.
func (h *History) Snapshot(ctx context.Context, read func(sink.Snapshot) error) error {
	tables, err := h.begin(ctx)
	if err != nil {
		return h.failure(err)
	}
	err = read(tables)
	_ = tables.tx.Rollback() // it has changed nothing
	if o := tables.of; err == nil && o.still && !h.isCurrent(o) {
		return sink.Unavailablef("SQLite file %s: a process that writes began while the file was read", h.path)
	}
	return err
}

// begin begins a transaction that reads. The writer may end between the opening of the file and this: in a folder that
// is read-only here, the file must be opened in another way then.
func (h *History) begin(ctx context.Context) (*snapshot, error) {
	var failed *opened
	for attempt := 1; ; attempt++ {
		o, err := h.current(ctx, failed)
		if err != nil {
			return nil, err
		}
		s := &snapshot{history: h, of: o}
		if s.tx, err = o.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}); err == nil {
			if s.format, err = formatOf(ctx, s.tx); err == nil {
				err = checkFormat(s.format)
			}
			if err == nil {
				return s, nil
			}
			_ = s.tx.Rollback() // it has changed nothing
		}
		if closed := h.isClosed(o); attempt == maxAttempts || !closed && reportedCode(err) != cannotOpen {
			return nil, err
		}
		failed = o
	}
}

// maxAttempts bounds how often the file is opened again for one snapshot.
const maxAttempts = 3

// isClosed reports whether another snapshot has closed the file, to open it again.
func (h *History) isClosed(o *opened) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last != o
}
