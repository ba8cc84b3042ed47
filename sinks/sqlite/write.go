package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// writer has the statements of a batch.
type writer struct {
	insert, end, before, gap, endGaps, cursor, aged, agedOf, oldest *sql.Stmt
	swept                                                           time.Time // when retention was last applied
}

const (
	insertRow = `INSERT INTO states (resource, namespace, name, uid, epoch, valid_from, seen_from, to_epoch, valid_to, seen_to, deleted, object, sum)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	// The rows of a key end in the order of their ids, the current one last: those behind the last one that ended before.
	endRows = `UPDATE states SET to_epoch = ?4, valid_to = CASE WHEN epoch = ?4 THEN max(valid_from, ?5) ELSE ?5 END,
			seen_to = coalesce(seen_to, ?6), deleted = CASE WHEN valid_to IS NULL THEN ?7 ELSE deleted AND uid <> ?8 END
		WHERE resource = ?1 AND namespace = ?2 AND name = ?3 AND id > coalesce((SELECT id FROM states
			WHERE resource = ?1 AND namespace = ?2 AND name = ?3 AND (to_epoch, valid_to) <= (?4, ?5) ORDER BY id DESC LIMIT 1), 0)`
	endRowsBefore = endRows + ` AND valid_to IS NOT NULL`
	insertGap     = `INSERT INTO gaps (resource, namespace, epoch, from_revision, to_revision, reason, seen, began) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, written
		FROM cursors WHERE resource = ?1 AND namespace = ?2`
	endGaps      = `UPDATE gaps SET ended = ?3 WHERE resource = ?1 AND namespace = ?2 AND ended IS NULL`
	updateCursor = `UPDATE cursors SET epoch = ?1, cursor = ?2, since = ?3, gap = ?4, objects = ?5, written = ?6, position = ?7,
			first_epoch = CASE WHEN first_revision = 0 THEN ?1 ELSE first_epoch END,
			first_seen = CASE WHEN first_revision = 0 AND ?3 > 0 THEN ?6 ELSE first_seen END,
			first_revision = CASE WHEN first_revision = 0 THEN ?3 ELSE first_revision END
		WHERE resource = ?8 AND namespace = ?9`
)

func newWriter(ctx context.Context, conn *sql.Conn) (*writer, error) {
	w := &writer{}
	for text, statement := range map[string]**sql.Stmt{
		insertRow: &w.insert, endRows: &w.end, endRowsBefore: &w.before, insertGap: &w.gap, endGaps: &w.endGaps,
		updateCursor: &w.cursor, expireAged: &w.aged, expireAgedOf: &w.agedOf, expireOldest: &w.oldest,
	} {
		var err error
		if *statement, err = conn.PrepareContext(ctx, text); err != nil {
			return nil, err // the connection is given up
		}
	}
	return w, nil
}

// close finalizes the statements: without that SQLite would leave the write-ahead log behind.
func (w *writer) close() error {
	return errors.Join(w.insert.Close(), w.end.Close(), w.before.Close(), w.gap.Close(), w.endGaps.Close(),
		w.cursor.Close(), w.aged.Close(), w.agedOf.Close(), w.oldest.Close())
}

// Write commits a batch. See [sink.Sink].
func (s *Sink) Write(ctx context.Context, batch sink.Batch) error {
	var expired []sink.Expiry
	err := s.transaction(ctx, func() error {
		messages, bytes := 0, 0
		var due []string // resources whose peak is
		for _, p := range batch.Pieces {
			messages += len(p.Messages)
			id := s.streams[p.Stream].ID
			changes, err := history.Of(p, s.empty[p.Stream])
			if err == nil {
				err = s.writer.write(ctx, id, p, changes, batch.Time.Format(timeFormat))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", id.Resource, err)
			}
			for _, r := range changes.Rows {
				bytes += len(r.JSON)
			}
			s.empty[p.Stream] = s.empty[p.Stream] && !changes.End()
			if s.peaks.Add(id.Resource, changes) {
				due = append(due, id.Resource)
			}
		}
		if err := s.storePeaks(ctx, due, batch.Time); err != nil {
			return err
		}
		if err := s.fillPeaks(ctx, batch.Time); err != nil {
			return err
		}
		var err error
		expired, err = s.expire(ctx, batch.Time, messages, bytes)
		return err
	})
	if err == nil {
		s.peaks.Stored(batch.Time)
		err = s.checkFile()
	}
	if err == nil {
		err = s.log.shorten(ctx, s.conn)
	}
	if err != nil {
		s.compressor.forget() // what the transaction has not stored
		return s.failure(err)
	}
	for _, e := range expired {
		if e.Reason == sink.ExpiredBySize {
			s.excess = e.Excess
		}
		if s.options.Expired != nil {
			s.options.Expired(e)
		}
	}
	return nil
}

func (w *writer) write(ctx context.Context, id stream.Identity, p sink.Piece, changes history.Changes,
	now string) error {
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
		if err := exec(ctx, w.gap, id.Resource, id.Namespace, g.Epoch, int64(g.From), int64(g.To), string(g.Reason),
			now); err != nil {
			return err
		}
	}
	a := p.After
	if a.Gap == "" && (p.Before.Gap != "" || len(changes.Gaps) > 0) { // the list is complete
		if _, err := w.endGaps.ExecContext(ctx, id.Resource, id.Namespace, now); err != nil {
			return err
		}
	}
	return exec(ctx, w.cursor, a.Epoch, int64(a.Cursor), int64(a.Since), string(a.Gap), int64(p.Count), now,
		string(p.Position), id.Resource, id.Namespace)
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
	return exec(ctx, w.insert, resource, r.Key.Namespace, r.Key.Name, string(r.UID), r.From.Epoch, int64(r.From.Revision),
		now,
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
