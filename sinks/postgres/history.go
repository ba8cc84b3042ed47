package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// History reads the tables of one schema, which another process may write meanwhile. It changes nothing, and needs no
// more than the right to select. Each snapshot has a connection of its own. A connection that has ended is opened anew.
type History struct {
	address string
	gaps    history.Gaps
	origin  history.Origin
	slots   chan struct{} // has an element for each snapshot that is read

	mu     sync.Mutex
	idle   []*Sink // have a connection; the one that was used last is the last
	closed bool
	// tables tells the tables that were opened apart from others of their names. What was read of them may be in the
	// memory of others, so that no other ones are read ever. It is empty until they were found.
	tables string
	typed  bool // they have the table types
}

// maxSnapshots bounds the snapshots that are read at a time, and the connections. Others wait.
const maxSnapshots = 8

// OpenHistory connects to an address. It returns an error if the schema has no tables of keepwatch sync, or those of
// a newer one. If they are dropped, emptied, or made anew, each snapshot is a [sink.Unavailable] from then on.
func OpenHistory(ctx context.Context, address string) (*History, error) {
	h := &History{address: address, slots: make(chan struct{}, maxSnapshots)}
	if err := h.Snapshot(ctx, func(sink.Snapshot) error { return nil }); err != nil {
		_ = h.Close() // it has changed nothing
		return nil, err
	}
	return h, nil
}

// connect returns a connection that reads.
func (h *History) connect(ctx context.Context) (*Sink, error) {
	s := New(h.address, Options{})
	h.mu.Lock()
	s.opened = h.tables != ""
	h.mu.Unlock()
	err := s.connect(ctx)
	if err == nil {
		_, err = s.conn.Exec(ctx, `SET default_transaction_read_only = on`)
	}
	if err == nil {
		err = s.checkSchema(ctx)
	}
	if err != nil {
		err = s.failure(err)
		_ = s.Close() // of a connection that is given up
		return nil, err
	}
	return s, nil
}

// isMissing reports whether an error is that of a table that does not exist.
func isMissing(err error) bool {
	reported, ok := errors.AsType[*pgconn.PgError](err)
	return ok && reported.Code == undefinedTable
}

// hold keeps the tables from being dropped until the end of a transaction, and returns their format. It returns an
// error if they are not those that were opened, or of a newer keepwatch. A transaction does not see rows of tables
// that were made after its beginning: without the locks, those would be empty.
func (h *History) hold(ctx context.Context, tx pgx.Tx) (int, error) {
	h.mu.Lock()
	opened, typed := h.tables != "", h.typed
	h.mu.Unlock()
	var err error
	if !opened { // a schema without the tables is told from one that lacks some
		_, err = tx.Exec(ctx, `LOCK TABLE keepwatch IN ACCESS SHARE MODE`)
	}
	alien := isMissing(err)
	if err == nil {
		_, err = tx.Exec(ctx, `LOCK TABLE keepwatch, resources, cursors, gaps IN ACCESS SHARE MODE`)
	}
	var tables string
	var format *int
	first := `''`
	if err == nil {
		if typed {
			first = firstType
		}
		err = tx.QueryRow(ctx, `SELECT (SELECT format FROM keepwatch), concat_ws(' ', to_regclass('keepwatch')::oid,
			CASE WHEN (SELECT format FROM keepwatch) < $1 THEN to_regclass('resources') ELSE to_regclass('states') END::oid,
			to_regclass('cursors')::oid, to_regclass('gaps')::oid), `+first, groupsFormat).Scan(&format, &tables, &first)
	}
	if err == nil && !typed && format != nil && *format >= typesFormat { // at the opening, or after a migration
		err = tx.QueryRow(ctx, `SELECT `+firstType).Scan(&first)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch lost := isMissing(err) || err == nil && tables != h.tables; {
	case lost && h.tables != "":
		return 0, sink.Unavailablef(
			"the tables were dropped, or made anew, since this process opened them: start the process again")
	case alien:
		return 0, errors.New("the schema has no tables of keepwatch sync")
	case err != nil:
		return 0, err
	case format == nil:
		return 0, history.ErrNoFormat
	}
	if err := history.CheckFormat(*format, len(migrations)); err != nil {
		return 0, err
	}
	if err := h.origin.Check(first); err != nil {
		return 0, err
	}
	h.tables, h.typed = tables, *format >= typesFormat
	return *format, nil
}

// firstType describes the first row of types. TRUNCATE leaves the tables, but not that row.
const firstType = `coalesce((SELECT concat_ws(' ', id, resource, extract(epoch FROM seen)) FROM types
	ORDER BY id LIMIT 1), '')`

// undefinedTable is the SQLSTATE of a table that does not exist.
const undefinedTable = "42P01"

// acquire returns a connection that no snapshot has, nil if there is none.
func (h *History) acquire() (*Sink, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.idle)
	switch {
	case h.closed:
		return nil, errors.New("postgres: the history is closed")
	case n == 0:
		return nil, nil
	}
	c := h.idle[n-1]
	h.idle = h.idle[:n-1]
	return c, nil
}

// release gives a connection back.
func (h *History) release(c *Sink) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || c.conn.IsClosed() {
		_ = c.Close() // it has changed nothing
		return
	}
	h.idle = append(h.idle, c)
}

// Close ends the connections. One that a snapshot has ends with that.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	var all []error
	for _, c := range h.idle {
		all = append(all, c.Close())
	}
	h.idle = nil
	return errors.Join(all...)
}

// Snapshot calls read with one state of the tables. It is valid until read returns.
func (h *History) Snapshot(ctx context.Context, read func(sink.Snapshot) error) error {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c, tx, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer h.release(c)
	if format, failed := h.hold(ctx, tx); failed != nil { // another sync may have changed the tables
		err = c.failure(failed)
	} else {
		err = read(&snapshot{tx: tx, sink: c, gaps: &h.gaps, format: format})
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = tx.Rollback(ending) // it has changed nothing; if it fails, the connection is closed
	return err
}

// begin begins a transaction that reads. Connections that have ended since they were used are no reason to fail.
func (h *History) begin(ctx context.Context) (*Sink, pgx.Tx, error) {
	for {
		c, err := h.acquire()
		if err != nil {
			return nil, nil, err
		}
		used := c != nil
		if !used {
			if c, err = h.connect(ctx); err != nil {
				return nil, nil, err
			}
		}
		tx, err := c.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err == nil {
			return c, tx, nil
		}
		err = c.failure(err)
		_ = c.Close()
		if !used || ctx.Err() != nil {
			return nil, nil, err
		}
	}
}
