package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// History reads the tables of one schema, which another process may write meanwhile. It changes nothing, and needs no
// more than the right to select. Each snapshot has a connection of its own. A connection that has ended is opened anew.
type History struct {
	address string
	gaps    history.Gaps
	slots   chan struct{} // has an element for each snapshot that is read

	mu     sync.Mutex
	idle   []*Sink // have a connection; the one that was used last is the last
	closed bool
}

// maxSnapshots bounds the snapshots that are read at a time, and the connections. Others wait.
const maxSnapshots = 8

// OpenHistory connects to an address. It returns an error if the schema has no tables of keepwatch sync, or those of
// a newer one.
func OpenHistory(ctx context.Context, address string) (*History, error) {
	h := &History{address: address, slots: make(chan struct{}, maxSnapshots)}
	c, err := h.connect(ctx)
	if err != nil {
		return nil, err
	}
	h.release(c)
	return h, nil
}

// connect returns a connection that reads.
func (h *History) connect(ctx context.Context) (*Sink, error) {
	s := New(h.address, Options{})
	err := s.connect(ctx)
	if err == nil {
		_, err = s.conn.Exec(ctx, `SET default_transaction_read_only = on`)
	}
	if err == nil {
		err = s.checkSchema(ctx)
	}
	if err == nil {
		_, err = readableFormat(ctx, s.conn)
	}
	if err != nil {
		err = s.failure(err)
		_ = s.Close() // of a connection that is given up
		return nil, err
	}
	return s, nil
}

// readableFormat returns the format of the tables, or an error if there are none, or those of a newer keepwatch.
func readableFormat(ctx context.Context, q querier) (int, error) {
	format, err := formatOf(ctx, q)
	switch {
	case err != nil:
		return 0, err
	case format == 0:
		return 0, errors.New("the schema has no tables of keepwatch sync")
	}
	return format, history.CheckFormat(format, len(migrations))
}

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
	if format, failed := readableFormat(ctx, tx); failed != nil { // another sync may have changed the tables
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
