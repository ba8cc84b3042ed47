package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

var (
	_ sink.Sink    = (*Sink)(nil)
	_ sink.Checker = (*Sink)(nil)
	_ sink.Reader  = (*Sink)(nil)
)

const (
	// connectTimeout bounds a connection attempt, unless the address has connect_timeout.
	connectTimeout = 30 * time.Second
	// writeTimeout bounds one batch, so that a connection that was cut without a sign is
	// noticed. It is a second longer for each slowestRate bytes of the batch: a slow connection would time out in the same
	// batch for ever.
	writeTimeout = 2 * time.Minute
	slowestRate  = 16 << 10
	checkTimeout = 30 * time.Second
	closeTimeout = 5 * time.Second
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
	// MaxSize is how many bytes all states may have, as JSON. Those that ended first are deleted beyond it, and current
	// ones never. Zero is no limit.
	MaxSize int64
	// Expired, if set, is called with what was deleted, after the transaction.
	Expired func(sink.Expiry)
	// TakeOver ends the session of another writer, once, at the start. It is for a process that was elected: the one
	// before it may be frozen, with its connection and its lock. It needs the same role, or pg_signal_backend.
	TakeOver bool
}

// Sink is the tables in one schema of a Postgres database.
type Sink struct {
	address string
	options Options
	clock   history.Clock
	timeout time.Duration // writeTimeout

	opened bool // Open has succeeded before
	conn   *pgx.Conn
	// schema is the first one of the address's search_path. Without one, or with "$user", it is empty until the tables
	// were found.
	schema  string
	session string // the server's process that had the lock for this sink, and its start
	token   string // of this writer
	streams []sink.Stream
	empty   []bool    // of streams: the tables have no row of the resource that has ended
	swept   time.Time // when retention was last applied
	thinner *history.Thinner
	sweep   int   // sweepRows
	bytes   int64 // of all states as JSON, with MaxSize
	excess  int64 // the last Expiry.Excess of size
	grouper grouper
	peaks   history.Peaks
}

// New returns the sink of an address: a URL or a keyword string, as libpq accepts them. It
// connects to nothing. Passwords are read anew, from ~/.pgpass for example, with each Open.
func New(address string, options Options) *Sink {
	return &Sink{address: address, options: options, clock: history.NewClock(), timeout: writeTimeout, sweep: sweepRows,
		grouper: grouper{whole: wholeTime, few: fewStates, least: minGroupBytes}, peaks: history.NewPeaks()}
}

// Open connects. See [sink.Sink].
func (s *Sink) Open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	if s.conn != nil {
		return nil, errors.New("the sink is open")
	}
	stored, err := s.open(ctx, streams)
	if err != nil {
		err = s.failure(err)
		_ = s.Close() // of a connection that is given up
		return nil, err
	}
	s.opened = true
	return stored, nil
}

func (s *Sink) open(ctx context.Context, streams []sink.Stream) (stored []sink.Stored, err error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	if err := s.enterSchema(ctx); err != nil {
		return nil, err
	}
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	if err := s.acquireLock(ctx); err != nil {
		return nil, err
	}
	s.streams, s.token, s.thinner = streams, rand.Text(), history.NewThinner(s.options.Thin)
	err = pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		if err := s.migrate(ctx, tx); err != nil {
			return err
		}
		if stored, err = s.load(ctx, tx); err == nil {
			err = s.measure(ctx, tx)
		}
		if err == nil {
			err = s.grouper.open(ctx, tx)
		}
		return err
	})
	return stored, err
}

func (s *Sink) connect(ctx context.Context) error {
	config, err := pgx.ParseConfig(s.address)
	if err != nil {
		return err
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "keepwatch sync"
	}
	// The role or the database may have another default, in which names and texts would not fit.
	config.RuntimeParams["client_encoding"] = encoding
	// PgBouncer refuses a connection with this parameter.
	searchPath := config.RuntimeParams["search_path"]
	delete(config.RuntimeParams, "search_path")
	if s.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return err
	}
	if stored := s.conn.PgConn().ParameterStatus("server_encoding"); stored != encoding {
		return unusable{fmt.Errorf("the database has the encoding %s, which has no place for every character of an object: "+
			"use one that was made by CREATE DATABASE … ENCODING '%s' TEMPLATE template0", stored, encoding)}
	}
	if err := s.checkPooler(ctx, config); err != nil {
		return err
	}
	// The server notices within a minute that this machine is gone, and lets a standby write. By default it takes two
	// hours. Poolers refuse these as parameters of a connection.
	if _, err = s.conn.Exec(ctx,
		`SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; `+boundLocks); err != nil ||
		searchPath == "" {
		return err
	}
	if first := firstSchema(searchPath); first != "" {
		s.schema = first
	}
	_, err = s.conn.Exec(ctx, `SELECT set_config('search_path', $1, false)`, searchPath)
	return err
}

// encoding is that of the connection and the database.
const encoding = "UTF8"

// boundLocks bounds the wait for a lock, unless the address or the role does. An open transaction of a reader must not
// block Open for ever, and with it all later readers.
const boundLocks = `SELECT set_config('lock_timeout', '30s', false) WHERE current_setting('lock_timeout') = '0'`

// acquireLock shuts out other writers until the connection ends.
func (s *Sink) acquireLock(ctx context.Context) error {
	var schema *string
	switch err := s.conn.QueryRow(ctx, `SELECT current_schema()`).Scan(&schema); {
	case err != nil:
		return err
	case schema == nil:
		return unusable{errors.New("the search_path names no schema that exists and that the user may use")}
	}
	var acquired bool
	var session string
	err := s.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended('keepwatch sync ' || current_schema(), 0)),
		(SELECT pid || ' ' || extract(epoch FROM backend_start) FROM pg_stat_activity WHERE pid = pg_backend_pid())`).Scan(
		&acquired, &session)
	if err != nil {
		return err
	}
	if acquired {
		s.session, s.schema = session, *schema
		return nil
	}
	holders, err := s.endHolders(ctx)
	switch {
	case err != nil:
		return err
	case holders > 0:
		return sink.Unavailablef("a session that must not write to schema %s any more is ended", *schema)
	}
	return &sink.Unavailable{Err: fmt.Errorf("another keepwatch sync writes to schema %s; this one is its standby",
		*schema), Standby: true}
}

// endHolders ends the session that has the lock of the schema, and returns how many were ended, if it is the one that
// this sink has lost, which the server may not have noticed, or if this process was elected.
func (s *Sink) endHolders(ctx context.Context) (ended int, err error) {
	elected := s.options.TakeOver && !s.opened
	if !elected && s.session == "" {
		return 0, nil
	}
	err = s.conn.QueryRow(ctx,
		`SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (classid::bigint << 32) | objid::bigint = hashtextextended('keepwatch sync ' || current_schema(), 0)
		AND ($1 OR pid || ' ' || extract(epoch FROM backend_start) = $2)`, elected, s.session).Scan(&ended)
	if err != nil {
		return 0, fmt.Errorf("end the session of the writer before: %w", err)
	}
	return ended, nil
}

// migrate makes the newest format of the tables, and enters this writer.
func (s *Sink) migrate(ctx context.Context, tx pgx.Tx) error {
	format, err := formatOf(ctx, tx)
	if err != nil {
		return err
	}
	if err := history.CheckFormat(format, len(migrations)); err != nil {
		return err
	}
	switch {
	case format == 0 && s.opened:
		return errDeleted
	case format > 0 && format < len(migrations):
		if format < groupsFormat {
			if err := lockViews(ctx, tx, format); err != nil {
				return fmt.Errorf("make the tables: %w", err)
			}
		}
		// A migration waits for readers before its work: after the limit of the wait, its indexes would be lost.
		if _, err := tx.Exec(ctx, `LOCK TABLE keepwatch, resources, cursors, gaps`); err != nil {
			return fmt.Errorf("make the tables: %w", err)
		}
	}
	for ; format < len(migrations); format++ {
		if err := makeFormat(ctx, tx, format+1); err != nil {
			return fmt.Errorf("make the tables: %w", err)
		}
	}
	_, err = tx.Exec(ctx, `UPDATE keepwatch SET format = $1, writer = $2`, format, s.token)
	return err
}

// makeFormat makes a format of the one before it.
func makeFormat(ctx context.Context, tx pgx.Tx, format int) (err error) {
	var views []userView
	if format == groupsFormat {
		if views, err = viewsOf(ctx, tx, format-1); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, migrations[format-1]); err != nil || format != groupsFormat {
		return err
	}
	if err := redirect(ctx, tx, views); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, useLZ4)
	return err
}

// useLZ4 takes a fraction of the time of Postgres' own compression, and finds what is far apart. A server may be built
// without.
const useLZ4 = `DO $$ BEGIN
  ALTER TABLE states ALTER COLUMN object SET COMPRESSION lz4;
  ALTER TABLE groups ALTER COLUMN objects SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$`

// formatOf returns the format of the tables, 0 if there are none.
func formatOf(ctx context.Context, q querier) (format int, err error) {
	var exists bool
	err = q.QueryRow(ctx,
		`SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'keepwatch')`).Scan(&exists)
	if err != nil || !exists {
		return 0, err
	}
	err = q.QueryRow(ctx, `SELECT format FROM keepwatch`).Scan(&format)
	if errors.Is(err, pgx.ErrNoRows) {
		err = history.ErrNoFormat
	}
	return format, err
}

// load marks the streams as the active ones, and returns what is stored of them.
func (s *Sink) load(ctx context.Context, tx pgx.Tx) ([]sink.Stored, error) {
	if _, err := tx.Exec(ctx, `UPDATE cursors SET active = false WHERE active`); err != nil {
		return nil, err
	}
	if err := s.enterCluster(ctx, tx); err != nil {
		return nil, err
	}
	stored := make([]sink.Stored, len(s.streams))
	s.empty = make([]bool, len(s.streams))
	for i, wanted := range s.streams {
		err := tx.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM states WHERE resource = $1)`,
			wanted.ID.Resource).Scan(&s.empty[i])
		if err != nil {
			return nil, err
		}
		if stored[i], err = loadStream(ctx, tx, wanted); err != nil {
			return nil, fmt.Errorf("%s: %w", wanted.ID.Resource, err)
		}
	}
	return stored, s.loadPeaks(ctx, tx)
}

// enterCluster stores what the streams know of the cluster, in all rows of cursors. It returns an error if a row is of
// another cluster.
func (s *Sink) enterCluster(ctx context.Context, tx pgx.Tx) error {
	all, err := statusIn(ctx, tx, len(migrations))
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
		if _, err := tx.Exec(ctx, `UPDATE cursors SET identity = $1 WHERE resource = $2 AND namespace = $3`, text,
			id.Resource, id.Namespace); err != nil {
			return err
		}
	}
	return nil
}

func loadStream(ctx context.Context, tx pgx.Tx, wanted sink.Stream) (stored sink.Stored, err error) {
	id := wanted.ID
	row := tx.QueryRow(ctx, `SELECT `+cursorColumns+` FROM cursors WHERE resource = $1 AND namespace = $2`, id.Resource,
		id.Namespace)
	found, position, err := scanCursor(row)
	isNew := errors.Is(err, pgx.ErrNoRows)
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
	if _, err := tx.Exec(ctx,
		`INSERT INTO cursors (resource, namespace, line, active, identity) VALUES ($1, $2, $3, true, $4)
		ON CONFLICT (resource, namespace) DO UPDATE SET line = excluded.line, active = true`,
		id.Resource, id.Namespace, wanted.Line, text); err != nil {
		return stored, err
	}
	if err := ensureView(ctx, tx, id.Resource); err != nil {
		return stored, err
	}
	if err := storeType(ctx, tx, wanted); err != nil {
		return stored, err
	}
	stored.Progress, stored.Position, stored.Time = found.Progress, position, found.Time
	if stored.Entries, err = entries(ctx, tx, id); err != nil {
		return stored, err
	}
	return stored, history.CheckNew(isNew, stored.Entries)
}

// ensureView makes the view of a resource, if there is none: to replace it, a transaction waits for all that read it. A
// migration that changes createView must drop the views. A view of its name may be a user's that reads the states in
// another way. A table, or a view of something else, is not ours: CREATE VIEW then fails.
func ensureView(ctx context.Context, tx pgx.Tx, resource string) error {
	name, exists := history.ViewName(resource), false
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class v JOIN pg_rewrite r ON r.ev_class = v.oid
		JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
		WHERE v.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND v.relname = $1
			AND d.refobjid IN ('states'::regclass, 'resources'::regclass))`,
		name).Scan(&exists); err != nil || exists {
		return err
	}
	literal := "'" + strings.ReplaceAll(resource, "'", "''") + "'"
	_, err := tx.Exec(ctx, fmt.Sprintf(createView, pgx.Identifier{name}.Sanitize(), literal))
	return err
}

// storeType stores the type of a stream if it is another one than the last one. It counts from no earlier time than
// that of the last batch, whose states have the type before.
func storeType(ctx context.Context, tx pgx.Tx, wanted sink.Stream) error {
	if wanted.Type == nil {
		return nil
	}
	text, err := json.Marshal(wanted.Type)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO types (resource, seen, type) 
		SELECT $1, greatest($2, (SELECT max(written) FROM cursors)), $3::jsonb
		WHERE $3::jsonb IS DISTINCT FROM (SELECT type FROM types WHERE resource = $1 ORDER BY id DESC LIMIT 1)`,
		wanted.ID.Resource, wanted.Seen.UTC(), string(text))
	return err
}

// entries returns the current objects of a stream.
func entries(ctx context.Context, tx pgx.Tx, id stream.Identity) (*stream.Entries, error) {
	query, args := `SELECT namespace, coalesce(full_name, name), uid, valid_from, coalesce(sum, 0) FROM states
		WHERE valid_to IS NULL AND resource = $1`, []any{id.Resource}
	if id.Namespace != "" { // a condition for both would read all namespaces for each one
		query, args = query+` AND namespace = $2`, append(args, id.Namespace)
	}
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	entries := stream.NewEntries()
	var e stream.Entry
	var sum int64
	_, err = pgx.ForEachRow(rows, []any{&e.Key.Namespace, &e.Key.Name, &e.UID, &e.Revision, &sum}, func() error {
		e.Key.Namespace, e.Key.Name, e.UID = original(e.Key.Namespace), original(e.Key.Name),
			keepwatch.UID(original(string(e.UID)))
		e.Rendition.Sum = uint64(sum)
		entries.Put(e)
		return nil
	})
	return entries, err
}

// Check asks the server whether this process is still the writer of its tables: a standby may have been promoted that
// lacks the last commits. See [sink.Checker].
func (s *Sink) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var writer string
	switch err := s.conn.QueryRow(ctx, `SELECT writer FROM keepwatch`).Scan(&writer); {
	case errors.Is(err, pgx.ErrNoRows):
		return s.failure(history.ErrNoFormat)
	case err != nil:
		return s.failure(err)
	case writer != s.token:
		return s.failure(errTakenOver)
	}
	return nil
}

// Close ends the connection.
func (s *Sink) Close() error {
	if s.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if !s.conn.IsClosed() { // the server notices the end of a connection later
		_, _ = s.conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`)
	}
	err := s.conn.Close(ctx)
	s.conn = nil
	return err
}
