package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

const (
	// The row lock makes the newest writer wait for this transaction, or shuts this one out.
	lockWriter = `SELECT FROM keepwatch WHERE writer = $1 FOR UPDATE`
	// The rows of a key end in the order of their ids, the current one last: those behind the last one that ended before.
	// One statement for each key always uses the primary key; for a join with all of them, the planner reads the whole
	// table until it has statistics.
	endRows = `UPDATE states
		SET to_epoch = $4, valid_to = CASE WHEN epoch = $4 THEN greatest(valid_from, $5) ELSE $5 END,
			seen_to = coalesce(seen_to, $6), deleted = CASE WHEN valid_to IS NULL THEN $7 ELSE deleted AND uid <> $8 END
		WHERE resource = $1 AND namespace = $2 AND name = $3 AND id > coalesce((SELECT id FROM states
			WHERE resource = $1 AND namespace = $2 AND name = $3 AND (to_epoch, valid_to) <= ($4, $5) ORDER BY id DESC LIMIT 1), 0)`
	endRowsBefore = endRows + ` AND valid_to IS NOT NULL`
	insertRow     = `INSERT INTO states (resource, namespace, name, uid, epoch, valid_from, seen_from, to_epoch, valid_to, seen_to, deleted, object, full_name, sum,
			bytes)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`
	insertGap = `INSERT INTO gaps (resource, namespace, epoch, from_revision, to_revision, reason, seen, began)
		VALUES ($1, $2, $3, $4, $5, $6, $7, (SELECT written FROM cursors WHERE resource = $1 AND namespace = $2))`
	endGaps      = `UPDATE gaps SET ended = $3 WHERE resource = $1 AND namespace = $2 AND ended IS NULL`
	updateCursor = `UPDATE cursors SET epoch = $3, cursor = $4, since = $5, gap = $6, objects = $7, written = $8, position = $9,
			first_epoch = CASE WHEN first_revision = 0 THEN $3 ELSE first_epoch END,
			first_seen = CASE WHEN first_revision = 0 AND $5::bigint > 0 THEN $8 ELSE first_seen END,
			first_revision = CASE WHEN first_revision = 0 THEN $5 ELSE first_revision END
		WHERE resource = $1 AND namespace = $2`
)

var rowColumns = []string{
	"resource", "namespace", "name", "uid", "epoch", "valid_from", "seen_from", "to_epoch", "valid_to", "seen_to",
	"deleted", "object", "full_name", "sum", "bytes",
}

// copyFrom is the number of rows from which on COPY is faster than statements in one round
// trip.
const copyFrom = 50

// Write commits a batch. See [sink.Sink].
func (s *Sink) Write(ctx context.Context, batch sink.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout+time.Duration(bytesOf(batch))*time.Second/slowestRate)
	defer cancel()
	if err := s.write(ctx, batch); err != nil {
		return s.failure(err)
	}
	return nil
}

// bytesOf returns the bytes of the objects of a batch.
func bytesOf(batch sink.Batch) (n int) {
	for _, p := range batch.Pieces {
		for _, m := range p.Messages {
			if e, ok := m.(stream.Event); ok {
				n += len(e.Object.JSON())
			}
		}
	}
	return n
}

func (s *Sink) write(ctx context.Context, batch sink.Batch) error {
	var rows [][]any
	first, last := &pgx.Batch{}, &pgx.Batch{}
	first.Queue(lockWriter, s.token).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return errTakenOver
		}
		return nil
	})
	messages, bytes := 0, 0
	var due []string // resources whose peak is
	for _, p := range batch.Pieces {
		messages += len(p.Messages)
		id := s.streams[p.Stream].ID
		changes, err := history.Of(p, s.empty[p.Stream])
		if err != nil {
			return fmt.Errorf("%s: %w", id.Resource, err)
		}
		s.empty[p.Stream] = s.empty[p.Stream] && !changes.End()
		queueEndings(first, id.Resource, changes.Endings, batch.Time)
		for _, r := range changes.Rows {
			rows = append(rows, valuesOf(id.Resource, r, batch.Time))
			bytes += len(r.JSON)
		}
		queueProgress(last, id, p, changes.Gaps, batch.Time)
		if s.peaks.Add(id.Resource, changes) {
			due = append(due, id.Resource)
		}
	}
	s.bytes += int64(bytes)
	var expired []sink.Expiry
	err := pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) (err error) {
		if err = insert(ctx, tx, first, rows, last); err == nil {
			err = s.storePeaks(ctx, tx, due, batch.Time)
		}
		if err == nil {
			err = s.fillPeaks(ctx, tx, batch.Time)
		}
		if err == nil {
			expired, err = s.expire(ctx, tx, batch.Time, messages)
		}
		if err == nil {
			err = s.grouper.step(ctx, tx, s.clock.Bound(batch.Time), messages, bytes)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.peaks.Stored(batch.Time)
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

// insert sends the statements first, inserts rows, and sends the statements last: in one
// round trip if there are few rows.
func insert(ctx context.Context, tx pgx.Tx, first *pgx.Batch, rows [][]any, last *pgx.Batch) error {
	if len(rows) >= copyFrom {
		if err := tx.SendBatch(ctx, first).Close(); err != nil {
			return err
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"states"}, rowColumns, pgx.CopyFromRows(rows)); err != nil {
			return err
		}
		return tx.SendBatch(ctx, last).Close()
	}
	for _, values := range rows {
		first.Queue(insertRow, values...)
	}
	first.QueuedQueries = append(first.QueuedQueries, last.QueuedQueries...)
	return tx.SendBatch(ctx, first).Close()
}

// queueEndings queues the ends of rows.
func queueEndings(b *pgx.Batch, resource string, endings []history.Ending, now time.Time) {
	for _, e := range endings {
		name, _ := indexed(e.Key.Name)
		args := []any{resource, text(e.Key.Namespace), name, e.Epoch, int64(e.Revision), now, e.Deleted, text(string(e.UID))}
		if e.Added {
			b.Queue(endRowsBefore, args...)
			continue
		}
		b.Queue(endRows, args...).Exec(affectsSome(resource, e.Key))
	}
}

// queueProgress queues the gaps and the cursor of a piece.
func queueProgress(b *pgx.Batch, id stream.Identity, p sink.Piece, gaps []history.Gap, now time.Time) {
	for _, g := range gaps {
		b.Queue(insertGap, id.Resource, id.Namespace, g.Epoch, int64(g.From), int64(g.To), string(g.Reason), now)
	}
	a := p.After
	if a.Gap == "" && (p.Before.Gap != "" || len(gaps) > 0) { // the list is complete
		b.Queue(endGaps, id.Resource, id.Namespace, now)
	}
	b.Queue(updateCursor, id.Resource, id.Namespace, a.Epoch, int64(a.Cursor), int64(a.Since), string(a.Gap),
		int64(p.Count), now, p.Position).Exec(affectsSome(id.Resource, keepwatch.Key{Name: "the cursor"}))
}

// affectsSome checks that a statement has changed a row. If it has changed none, another
// program has changed the tables.
func affectsSome(resource string, key keepwatch.Key) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%s: %s: the row to change is missing: another program has changed the tables", resource, key)
		}
		return nil
	}
}

// valuesOf returns the values of rowColumns.
func valuesOf(resource string, r history.Row, now time.Time) []any {
	var epoch, revision, seen any
	deleted := false
	if r.End != nil {
		epoch, revision, seen, deleted = r.End.Epoch, int64(r.End.Revision), now, r.End.Deleted
	}
	name, full := indexed(r.Key.Name)
	return []any{
		resource, text(r.Key.Namespace), name, text(string(r.UID)), r.From.Epoch, int64(r.From.Revision), now, epoch,
		revision, seen, deleted,
		acceptable(r.JSON), full, int64(r.Sum), len(r.JSON),
	}
}
