package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	driver "modernc.org/sqlite"
	code "modernc.org/sqlite/lib"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/filelock"
	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

var (
	_ sink.Sink   = (*Sink)(nil)
	_ sink.Reader = (*Sink)(nil)
)

// Options configure a sink. The zero value is ready for use.
type Options struct {
	// Retention is how long a state is retained after it was replaced or deleted. Zero
	// retains all.
	Retention time.Duration
	// RetentionOf is the retention of some resources, by "deployments.apps", in place of Retention.
	RetentionOf map[string]time.Duration
	// Thin thins out what is older than its age, and not deleted yet. If there are several, each has a greater age than
	// the one before, and an interval that is a multiple of that one's.
	Thin []sink.Thinning
	// MaxSize is how many bytes the file may have. The states that ended first are deleted beyond it, and current ones
	// never. Zero is no limit. A file that is larger already does not shrink; it does not grow either. The write-ahead
	// log is beside it.
	MaxSize int64
	// Expired, if set, is called with what was deleted, after the transaction.
	Expired func(sink.Expiry)
}

// Sink is a SQLite file.
type Sink struct {
	path    string
	options Options
	clock   history.Clock

	lock       io.Closer
	db         *sql.DB
	conn       *sql.Conn
	file       os.FileInfo // of path, when it was opened
	streams    []sink.Stream
	empty      []bool // of streams: the file has no row of the resource that has ended
	writer     *writer
	thinner    *history.Thinner
	compressor *compressor
	peaks      history.Peaks
	sweep      int           // sweepRows
	whole      time.Duration // wholeTime
	least      int           // minCompressed
	excess     int64         // the last Expiry.Excess of size
	log        writeAhead
}

// New returns the sink of the file at path. It opens nothing.
func New(path string, options Options) *Sink {
	return &Sink{path: path, options: options, clock: history.NewClock(), sweep: sweepRows, whole: wholeTime,
		least: minCompressed, peaks: history.NewPeaks(), log: writeAhead{bound: logBytes}}
}

// Open opens the file, or creates it. See [sink.Sink].
func (s *Sink) Open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	if s.conn != nil {
		return nil, errors.New("the sink is open")
	}
	stored, err := s.open(ctx, streams)
	if err != nil {
		return nil, errors.Join(s.failure(err), s.Close())
	}
	return stored, nil
}

func (s *Sink) open(ctx context.Context, streams []sink.Stream) (stored []sink.Stored, err error) {
	path, err := filepath.EvalSymlinks(s.path) // SQLite follows links, and its file has one lock
	if errors.Is(err, fs.ErrNotExist) {
		path, err = s.path, nil
	}
	if err != nil {
		return nil, err
	}
	s.log.path = path + "-wal"
	s.lock, err = filelock.TryLock(path + ".lock")
	switch {
	case errors.Is(err, filelock.ErrLocked):
		return nil, errors.New("it is in use by another keepwatch sync")
	case err != nil:
		return nil, err
	}
	if s.file != nil {
		err = s.checkFile() // that of an earlier Open
	} else {
		err = s.createPrivate()
	}
	if err != nil {
		return nil, err
	}
	if err := s.connect(ctx, "_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(10000)"+
		"&_pragma=cache_size(-16000)&_pragma=wal_autocheckpoint(4000)"); err != nil { // 16 MB each
		return nil, err
	}
	if s.file, err = os.Stat(s.path); err != nil {
		return nil, err
	}
	if err := s.migrate(ctx); err != nil {
		return nil, err
	}
	s.streams = streams
	if err := s.transaction(ctx, func() error {
		if stored, err = s.load(ctx); err == nil {
			err = s.loadPeaks(ctx)
		}
		return err
	}); err != nil {
		return nil, err
	}
	s.writer, err = newWriter(ctx, s.conn)
	s.thinner = history.NewThinner(s.options.Thin)
	s.compressor = newCompressor()
	return stored, err
}

// createPrivate creates the file, if it does not exist, so that only this user can read it: the
// objects may be confidential.
func (s *Sink) createPrivate() error {
	file, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

func (s *Sink) connect(ctx context.Context, query string) (err error) {
	if s.db, err = sql.Open("sqlite", dataSource(s.path, query)); err != nil {
		return err
	}
	s.db.SetMaxOpenConns(1)
	s.conn, err = s.db.Conn(ctx)
	return err
}

// migrate makes the newest format of the tables.
func (s *Sink) migrate(ctx context.Context) error {
	return s.transaction(ctx, func() error {
		format, err := formatOf(ctx, s.conn)
		if err != nil {
			return err
		}
		if err := history.CheckFormat(format, len(migrations)); err != nil {
			return err
		}
		for ; format < len(migrations); format++ {
			if _, err := s.conn.ExecContext(ctx, migrations[format]); err != nil {
				return fmt.Errorf("make the tables: %w", err)
			}
		}
		_, err = s.conn.ExecContext(ctx, `UPDATE keepwatch SET format = ?`, format)
		return err
	})
}

// querier is a connection, or several.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// formatOf returns the format of the tables, 0 if there are none.
func formatOf(ctx context.Context, db querier) (format int, err error) {
	var tables int
	if err := db.QueryRowContext(ctx,
		`SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'keepwatch'`).Scan(&tables); err != nil ||
		tables == 0 {
		return 0, err
	}
	err = db.QueryRowContext(ctx, `SELECT format FROM keepwatch`).Scan(&format)
	if errors.Is(err, sql.ErrNoRows) {
		err = history.ErrNoFormat
	}
	return format, err
}

// transaction runs change in a transaction that no other connection can write in.
func (s *Sink) transaction(ctx context.Context, change func() error) error {
	if _, err := s.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := change()
	if err == nil {
		_, err = s.conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		// After some errors SQLite has rolled back already, and ROLLBACK fails.
		_, _ = s.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	}
	return err
}

// load marks the streams as the active ones, and returns what is stored of them.
func (s *Sink) load(ctx context.Context) ([]sink.Stored, error) {
	if _, err := s.conn.ExecContext(ctx, `UPDATE cursors SET active = 0`); err != nil {
		return nil, err
	}
	if err := s.enterCluster(ctx); err != nil {
		return nil, err
	}
	stored := make([]sink.Stored, len(s.streams))
	s.empty = make([]bool, len(s.streams))
	for i, wanted := range s.streams {
		row := s.conn.QueryRowContext(ctx, `SELECT NOT EXISTS (SELECT 1 FROM states WHERE resource = ?)`,
			wanted.ID.Resource)
		err := row.Scan(&s.empty[i])
		if err != nil {
			return nil, err
		}
		if stored[i], err = s.loadStream(ctx, wanted); err != nil {
			return nil, fmt.Errorf("%s: %w", wanted.ID.Resource, err)
		}
	}
	return stored, nil
}

// enterCluster stores what the streams know of the cluster, in all rows of cursors. It returns an error if a row is of
// another cluster.
func (s *Sink) enterCluster(ctx context.Context) error {
	rows, err := s.conn.QueryContext(ctx, `SELECT `+cursorColumns+` FROM cursors`)
	if err != nil {
		return err
	}
	defer rows.Close()
	all, err := scanCursors(rows)
	if err != nil {
		return err
	}
	changed, err := history.EnterCluster(all, s.streams)
	if err != nil {
		return err
	}
	for _, id := range changed {
		text, err := json.Marshal(id)
		if err != nil {
			return err
		}
		if _, err := s.conn.ExecContext(ctx, `UPDATE cursors SET identity = ? WHERE resource = ? AND namespace = ?`,
			string(text), id.Resource, id.Namespace); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sink) loadStream(ctx context.Context, wanted sink.Stream) (stored sink.Stored, err error) {
	id := wanted.ID
	row := s.conn.QueryRowContext(ctx, `SELECT `+cursorColumns+` FROM cursors WHERE resource = ? AND namespace = ?`,
		id.Resource, id.Namespace)
	found, position, err := scanCursor(row)
	isNew := errors.Is(err, sql.ErrNoRows)
	switch {
	case isNew:
	case err != nil:
		return stored, err
	default:
		if err := history.CheckIdentity(found.ID, id); err != nil {
			return stored, err
		}
	}
	text, err := json.Marshal(id)
	if err != nil {
		return stored, err
	}
	if _, err := s.conn.ExecContext(ctx,
		`INSERT INTO cursors (resource, namespace, line, active, identity) VALUES (?, ?, ?, 1, ?)
		ON CONFLICT DO UPDATE SET line = excluded.line, active = 1`,
		id.Resource, id.Namespace, wanted.Line, string(text)); err != nil {
		return stored, err
	}
	if _, err := s.conn.ExecContext(ctx, fmt.Sprintf(createView, history.ViewName(id.Resource),
		strings.ReplaceAll(id.Resource, "'", "''"))); err != nil {
		return stored, err
	}
	if err := s.storeType(ctx, wanted); err != nil {
		return stored, err
	}
	stored.Progress, stored.Position, stored.Time = found.Progress, position, found.Time
	if stored.Entries, err = s.entries(ctx, id); err != nil {
		return stored, err
	}
	return stored, history.CheckNew(isNew, stored.Entries)
}

// storeType stores the type of a stream if it is another one than the last one. It counts from no earlier time than
// that of the last batch, whose states have the type before.
func (s *Sink) storeType(ctx context.Context, wanted sink.Stream) error {
	if wanted.Type == nil {
		return nil
	}
	text, err := json.Marshal(wanted.Type)
	if err != nil {
		return err
	}
	_, err = s.conn.ExecContext(ctx, `INSERT INTO types (resource, seen, type) 
		SELECT ?1, max(?2, coalesce((SELECT max(written) FROM cursors), '')), ?3
		WHERE ?3 IS NOT (SELECT type FROM types WHERE resource = ?1 ORDER BY id DESC LIMIT 1)`,
		wanted.ID.Resource, wanted.Seen.UTC().Format(timeFormat), string(text))
	return err
}

// entries returns the current objects of a stream.
func (s *Sink) entries(ctx context.Context, id stream.Identity) (*stream.Entries, error) {
	query, args := `SELECT namespace, name, uid, valid_from, coalesce(sum, 0) FROM states
		WHERE valid_to IS NULL AND resource = ?1`, []any{id.Resource}
	if id.Namespace != "" { // a condition for both would read all namespaces for each one
		query, args = query+` AND namespace = ?2`, append(args, id.Namespace)
	}
	rows, err := s.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	entries := stream.NewEntries()
	for rows.Next() {
		var e stream.Entry
		var revision, sum int64
		if err := rows.Scan(&e.Key.Namespace, &e.Key.Name, &e.UID, &revision, &sum); err != nil {
			return nil, err
		}
		e.Revision, e.Rendition.Sum = keepwatch.Revision(revision), uint64(sum)
		entries.Put(e)
	}
	return entries, rows.Err()
}

// Close closes the file.
func (s *Sink) Close() error {
	var errs []error
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	s.conn, s.db, s.lock, s.writer = nil, nil, nil, nil
	return errors.Join(errs...)
}

// checkFile returns an error if the file was deleted or replaced. The operating system
// would still accept writes to it.
func (s *Sink) checkFile() error {
	if file, err := os.Stat(s.path); err != nil || !os.SameFile(file, s.file) {
		return errors.New("it was deleted or replaced while it was in use")
	}
	return nil
}

// cannotOpen is the code of a file that SQLite needs and that cannot be opened.
const cannotOpen = code.SQLITE_CANTOPEN

// reportedCode returns SQLite's code of an error, 0 if it has none.
func reportedCode(err error) int {
	if reported, ok := errors.AsType[*driver.Error](err); ok {
		return reported.Code() & 0xff
	}
	return 0
}

// failure adds the path to an error, and makes one that another attempt may not meet a [sink.Unavailable].
func (s *Sink) failure(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("SQLite file: %w", path)
	}
	switch reportedCode(err) {
	case code.SQLITE_BUSY, code.SQLITE_LOCKED, code.SQLITE_FULL, code.SQLITE_IOERR, code.SQLITE_NOMEM:
		return sink.Unavailablef("SQLite file %s: %w", s.path, err)
	case code.SQLITE_CORRUPT, code.SQLITE_NOTADB:
		return fmt.Errorf("SQLite file %s: %w; if it was copied from a backup, copy it again, while no sync runs, and delete "+
			"%[1]s-wal and %[1]s-shm before: they are of the file before, and are applied to the copy", s.path, err)
	}
	return fmt.Errorf("SQLite file %s: %w", s.path, err)
}
