package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// writer has the statements of a batch.
type writer struct {
	insert, end, before, gap, cursor, expire *sql.Stmt
	swept                                    time.Time // when retention was last applied
}

const (
	insertRow = `INSERT INTO resources (resource, namespace, name, uid, epoch, valid_from, seen_from, to_epoch, valid_to, seen_to, deleted, object, sum)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	// The rows of a key end in the order of their ids, the current one last: those behind the last one that ended before.
	endRows = `UPDATE resources SET to_epoch = ?4, valid_to = CASE WHEN epoch = ?4 THEN max(valid_from, ?5) ELSE ?5 END,
			seen_to = coalesce(seen_to, ?6), deleted = CASE WHEN valid_to IS NULL THEN ?7 ELSE deleted AND uid <> ?8 END
		WHERE resource = ?1 AND namespace = ?2 AND name = ?3 AND id > coalesce((SELECT id FROM resources
			WHERE resource = ?1 AND namespace = ?2 AND name = ?3 AND (to_epoch, valid_to) <= (?4, ?5) ORDER BY id DESC LIMIT 1), 0)`
	endRowsBefore = endRows + ` AND valid_to IS NOT NULL`
	insertGap     = `INSERT INTO gaps (resource, namespace, epoch, from_revision, to_revision, reason, seen) VALUES (?, ?, ?, ?, ?, ?, ?)`
	updateCursor  = `UPDATE cursors SET epoch = ?1, cursor = ?2, since = ?3, gap = ?4, objects = ?5, written = ?6, position = ?7,
			first_epoch = CASE WHEN first_revision = 0 THEN ?1 ELSE first_epoch END,
			first_seen = CASE WHEN first_revision = 0 AND ?3 > 0 THEN ?6 ELSE first_seen END,
			first_revision = CASE WHEN first_revision = 0 THEN ?3 ELSE first_revision END
		WHERE resource = ?8 AND namespace = ?9`
	expireRows = `DELETE FROM resources WHERE id IN (SELECT id FROM resources WHERE seen_to < ? LIMIT ?)
		RETURNING resource, namespace, to_epoch, valid_to, seen_to`
	moveFirst = `UPDATE cursors SET first_epoch = ?3, first_revision = ?4, first_seen = ?5
		WHERE resource = ?1 AND namespace IN ('', ?2) AND (first_epoch, first_revision) < (?3, ?4)`
)

func newWriter(ctx context.Context, conn *sql.Conn) (*writer, error) {
	w := &writer{}
	for text, statement := range map[string]**sql.Stmt{insertRow: &w.insert, endRows: &w.end, endRowsBefore: &w.before, insertGap: &w.gap, updateCursor: &w.cursor, expireRows: &w.expire} {
		var err error
		if *statement, err = conn.PrepareContext(ctx, text); err != nil {
			return nil, err // the connection is given up
		}
	}
	return w, nil
}

// close finalizes the statements: without that SQLite would leave the write-ahead log behind.
func (w *writer) close() error {
	return errors.Join(w.insert.Close(), w.end.Close(), w.before.Close(), w.gap.Close(), w.cursor.Close(), w.expire.Close())
}

// Write commits a batch. See [sink.Sink].
func (s *Sink) Write(ctx context.Context, batch sink.Batch) error {
	err := s.transaction(ctx, func() error {
		for _, p := range batch.Pieces {
			id := s.streams[p.Stream].ID
			changes, err := history.Of(p, s.empty[p.Stream])
			if err == nil {
				err = s.writer.write(ctx, id, p, changes, batch.Time.Format(timeFormat))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", id.Resource, err)
			}
			s.empty[p.Stream] = s.empty[p.Stream] && !changes.End()
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

func (w *writer) write(ctx context.Context, id stream.Identity, p sink.Piece, changes history.Changes, now string) error {
	for _, e := range changes.Endings {
		if err := w.endRows(ctx, id.Resource, e, now); err != nil {
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

func (w *writer) endRows(ctx context.Context, resource string, e history.Ending, now string) error {
	args := []any{resource, e.Key.Namespace, e.Key.Name, e.Epoch, int64(e.Revision), now, e.Deleted, string(e.UID)}
	if e.Added {
		_, err := w.before.ExecContext(ctx, args...)
		return err
	}
	return exec(ctx, w.end, args...)
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

// exec executes a statement that changes a row. If it changes none, another program has
// changed the tables.
func exec(ctx context.Context, statement *sql.Stmt, args ...any) error {
	result, err := statement.ExecContext(ctx, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return fmt.Errorf("the row to change is missing: another program has changed the tables (%v)", err)
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
	deleted, last, err := s.expireRows(ctx, now.Add(-s.options.Retention).Format(timeFormat))
	if err != nil {
		return err
	}
	for in, end := range last {
		if _, err := s.conn.ExecContext(ctx, moveFirst, in.resource, in.namespace, end.Epoch, int64(end.Revision), end.seen); err != nil {
			return err
		}
	}
	if deleted < sweepRows { // otherwise the next batch continues
		s.writer.swept = now
	}
	return nil
}

// place is a namespace of a resource.
type place struct{ resource, namespace string }

// expired is the end of a row that was deleted.
type expired struct {
	sink.Point
	seen string
}

// expireRows deletes rows that ended before a time, and returns how many, and the last end of those of each place.
func (s *Sink) expireRows(ctx context.Context, before string) (deleted int, last map[place]expired, err error) {
	rows, err := s.writer.expire.QueryContext(ctx, before, sweepRows)
	if err != nil {
		return 0, nil, err
	}
	defer rows.Close()
	last = map[place]expired{}
	for rows.Next() {
		var in place
		var end expired
		var revision int64
		if err := rows.Scan(&in.resource, &in.namespace, &end.Epoch, &revision, &end.seen); err != nil {
			return 0, nil, err
		}
		end.Revision = keepwatch.Revision(revision)
		if last[in].Before(end.Point) {
			last[in] = end
		}
		deleted++
	}
	return deleted, last, rows.Err()
}
