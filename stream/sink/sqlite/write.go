package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/internal/history"
)

// writer has the statements of a batch.
type writer struct {
	insert, end, gap, cursor, expire *sql.Stmt
	swept                            time.Time // when retention was last applied
}

const (
	insertRow = `INSERT INTO resources (resource, namespace, name, uid, epoch, valid_from, seen_from, to_epoch, valid_to, seen_to, deleted, object, sum)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	// An end is never before the beginning of its row.
	endRow = `UPDATE resources SET to_epoch = ?4, valid_to = CASE WHEN epoch = ?4 THEN max(valid_from, ?5) ELSE ?5 END, seen_to = ?6, deleted = ?7
		WHERE resource = ?1 AND namespace = ?2 AND name = ?3 AND valid_to IS NULL`
	insertGap    = `INSERT INTO gaps (resource, namespace, epoch, from_revision, to_revision, reason, seen) VALUES (?, ?, ?, ?, ?, ?, ?)`
	updateCursor = `UPDATE cursors SET epoch = ?, cursor = ?, since = ?, gap = ?, objects = ?, written = ?, position = ? WHERE resource = ? AND namespace = ?`
	expireRows   = `DELETE FROM resources WHERE id IN (SELECT id FROM resources WHERE seen_to < ? LIMIT ?)`
)

func newWriter(ctx context.Context, conn *sql.Conn) (*writer, error) {
	w := &writer{}
	for text, statement := range map[string]**sql.Stmt{insertRow: &w.insert, endRow: &w.end, insertGap: &w.gap, updateCursor: &w.cursor, expireRows: &w.expire} {
		var err error
		if *statement, err = conn.PrepareContext(ctx, text); err != nil {
			return nil, err // the connection is given up
		}
	}
	return w, nil
}

// close finalizes the statements: without that SQLite would leave the write-ahead log behind.
func (w *writer) close() error {
	return errors.Join(w.insert.Close(), w.end.Close(), w.gap.Close(), w.cursor.Close(), w.expire.Close())
}

// Write commits a batch. See [sink.Sink].
func (s *Sink) Write(ctx context.Context, batch sink.Batch) error {
	err := s.transaction(ctx, func() error {
		for _, p := range batch.Pieces {
			if err := s.writer.write(ctx, s.streams[p.Stream].ID, p, batch.Time.Format(timeFormat)); err != nil {
				return fmt.Errorf("%s: %w", s.streams[p.Stream].ID.Resource, err)
			}
		}
		return s.expire(ctx, batch.Time)
	})
	if err == nil {
		err = s.checkFile()
	}
	if err != nil {
		return s.failure(err)
	}
	return nil
}

func (w *writer) write(ctx context.Context, id stream.Identity, p sink.Piece, now string) error {
	changes, err := history.Of(p)
	if err != nil {
		return err
	}
	for _, e := range changes.Endings {
		if err := w.endRow(ctx, id.Resource, e, now); err != nil {
			return fmt.Errorf("%s: %w", e.Key, err)
		}
	}
	for _, r := range changes.Rows {
		if err := w.insertRow(ctx, id.Resource, r, now); err != nil {
			return fmt.Errorf("%s: %w", r.Key, err)
		}
	}
	for _, g := range changes.Gaps {
		if _, err := w.gap.ExecContext(ctx, id.Resource, id.Namespace, g.Epoch, int64(g.From), int64(g.To), string(g.Reason), now); err != nil {
			return err
		}
	}
	a := p.After
	return exec(ctx, w.cursor, a.Epoch, int64(a.Cursor), int64(a.Since), string(a.Gap), int64(p.Count), now, string(p.Position), id.Resource, id.Namespace)
}

func (w *writer) endRow(ctx context.Context, resource string, e history.Ending, now string) error {
	return exec(ctx, w.end, resource, e.Key.Namespace, e.Key.Name, e.Epoch, int64(e.Revision), now, e.Deleted)
}

func (w *writer) insertRow(ctx context.Context, resource string, r history.Row, now string) error {
	var epoch, revision, seen any
	deleted := false
	if r.End != nil {
		epoch, revision, seen, deleted = r.End.Epoch, int64(r.End.Revision), now, r.End.Deleted
	}
	return exec(ctx, w.insert, resource, r.Key.Namespace, r.Key.Name, string(r.UID), r.From.Epoch, int64(r.From.Revision), now,
		epoch, revision, seen, deleted, string(r.JSON), int64(r.Sum))
}

// exec executes a statement that changes one row. If it changes none, another program has
// changed the tables.
func exec(ctx context.Context, statement *sql.Stmt, args ...any) error {
	result, err := statement.ExecContext(ctx, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("%d rows were to be changed, not 1: another program has changed the tables (%v)", n, err)
	}
	return nil
}

const (
	// sweepEvery is how often retention is applied, and sweepRows bounds the rows of one
	// batch.
	sweepEvery = time.Minute
	sweepRows  = 2000
)

// expire deletes rows that ended before the retention.
func (s *Sink) expire(ctx context.Context, now time.Time) error {
	if s.options.Retention == 0 || now.Sub(s.writer.swept) < sweepEvery {
		return nil
	}
	result, err := s.writer.expire.ExecContext(ctx, now.Add(-s.options.Retention).Format(timeFormat), sweepRows)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == sweepRows {
		return err // the next batch continues
	}
	s.writer.swept = now
	return nil
}
