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
	"sync/atomic"

	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// History reads the tables of a file, which another process may write meanwhile. It never changes the file, and holds
// up no writer, except one that waits for snapshots to make a long write-ahead log short. It is safe for concurrent
// use.
type History struct {
	path string
	// file is what was opened. What was read of it may be in the memory of others, so that no other file is read ever.
	file   os.FileInfo
	lost   atomic.Bool // another file was at the path: connections may be of that one
	gaps   history.Gaps
	origin history.Origin

	mu   sync.Mutex
	last *opened // nil: closed
}

// opened is the file as it was opened for reading.
type opened struct {
	db *sql.DB
	// held is a connection that is always open: a file that was deleted and is open has a number that no other one gets,
	// so that os.SameFile tells them apart.
	held *sql.Conn
	// still is the file when it was opened as one that nobody writes, otherwise nil. SQLite sees no change of such a
	// file.
	still os.FileInfo
}

func (o *opened) close() error { return errors.Join(o.held.Close(), o.db.Close()) }

// OpenHistory opens a file for reading. It returns an error for a file that does not exist, is damaged, or has no
// tables of keepwatch sync or those of a newer one. If the file is deleted or replaced, each snapshot is a
// [sink.Unavailable] from then on.
func OpenHistory(ctx context.Context, path string) (*History, error) {
	h := &History{path: path}
	var err error
	if h.file, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		err = errors.New("there is no such file: give the one that keepwatch sync writes")
	} else if err == nil && h.file.IsDir() {
		err = errors.New("it is a directory")
	}
	if err == nil {
		h.last, err = h.open(ctx)
	}
	if err != nil {
		return nil, h.failure(err)
	}
	return h, nil
}

// stat returns the file at the path, which must be the one that was opened.
func (h *History) stat() (os.FileInfo, error) {
	file, err := os.Stat(h.path)
	missing := errors.Is(err, fs.ErrNotExist) // it may have been renamed, and come back
	if err == nil && !os.SameFile(file, h.file) {
		h.lost.Store(true)
	}
	if missing || h.lost.Load() {
		return nil, sink.Unavailablef("it was deleted or replaced since this process opened it: start the process again")
	}
	return file, err
}

// open opens the file.
func (h *History) open(ctx context.Context) (*opened, error) {
	file, err := h.stat()
	if err != nil {
		return nil, err
	}
	o, err := h.connect(ctx, "mode=ro&_pragma=busy_timeout(10000)&_pragma=query_only(1)")
	if reportedCode(err) == cannotOpen && !h.hasLog() {
		// SQLite needs a file beside this one, which a read-only file system refuses. Nobody writes now: a writer has a
		// log.
		if o, err = h.connect(ctx, "mode=ro&immutable=1&_pragma=query_only(1)"); err == nil {
			o.still = file
		}
	}
	return o, err
}

// connect opens the file with parameters of the driver.
func (h *History) connect(ctx context.Context, query string) (*opened, error) {
	db, err := sql.Open("sqlite", dataSource(h.path, query))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxSnapshots + 1) // and held
	held, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	o := &opened{db: db, held: held}
	format, err := formatOf(ctx, held)
	if err == nil {
		err = checkFormat(format)
	}
	if err != nil {
		return nil, errors.Join(err, o.close())
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

// isStill reports whether nobody has written to a file since it was opened.
func (h *History) isStill(still os.FileInfo) bool {
	file, err := h.stat()
	return err == nil && file.Size() == still.Size() && file.ModTime().Equal(still.ModTime())
}

// current returns the open file. It opens the file again if that is not the one that failed, or has a writer that
// SQLite does not see. Snapshots of the one before continue.
func (h *History) current(ctx context.Context, failed *opened) (*opened, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.last
	switch {
	case before == nil:
		return nil, errors.New("it is closed")
	case before != failed && (before.still == nil || h.isStill(before.still) && !h.hasLog()):
		return before, nil
	}
	o, err := h.open(ctx)
	if err != nil { // the next snapshot tries again
		return nil, err
	}
	h.last = o
	return o, before.close()
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
	err := h.last.close()
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
	if o := tables.of; err == nil && o.still != nil && !h.isStill(o.still) {
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
		}
		if err == nil {
			err = h.checkOrigin(ctx, s)
		}
		_, lost := h.stat() // a connection that was opened for this may be of another file, which SQLite does not see
		if err == nil && lost == nil {
			return s, nil
		}
		if s.tx != nil {
			_ = s.tx.Rollback() // it has changed nothing
		}
		if lost != nil {
			return nil, lost
		}
		if closed := h.isClosed(o); attempt == maxAttempts || !closed && reportedCode(err) != cannotOpen {
			return nil, err
		}
		failed = o
	}
}

// checkOrigin returns an error if the tables have other rows than those that were opened.
func (h *History) checkOrigin(ctx context.Context, s *snapshot) error {
	if s.format < 4 { // without types
		return nil
	}
	var first string
	err := s.tx.QueryRowContext(ctx, `SELECT coalesce((SELECT id || ' ' || resource || ' ' || seen FROM types
		ORDER BY id LIMIT 1), '')`).Scan(&first)
	if err != nil {
		return err
	}
	return h.origin.Check(first)
}

// maxAttempts bounds how often the file is opened again for one snapshot.
const maxAttempts = 3

// isClosed reports whether another snapshot has closed the file, to open it again.
func (h *History) isClosed(o *opened) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last != o
}
