package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

const (
	// The rows that ended first are deleted first: those that are retained are all that ended after the last deleted
	// one.
	expireAged = `DELETE FROM states WHERE id IN (SELECT id FROM states WHERE seen_to < ? ORDER BY seen_to, id LIMIT ?)
		RETURNING resource, namespace, to_epoch, valid_to, seen_to, coalesce(base, 0)`
	// Of one resource. Revisions are not in the order of times: a list ends a state of equal revision at that one.
	expireAgedOf = `DELETE FROM states WHERE id IN (SELECT id FROM states WHERE resource = ? AND seen_to < ?
			ORDER BY seen_to, id LIMIT ?)
		RETURNING resource, namespace, to_epoch, valid_to, seen_to, coalesce(base, 0)`
	expireOldest = `DELETE FROM states WHERE id IN (SELECT id FROM states WHERE seen_to IS NOT NULL ORDER BY seen_to, id LIMIT ?)
		RETURNING resource, namespace, to_epoch, valid_to, seen_to, coalesce(base, 0)`
	moveFirst = `UPDATE cursors SET first_epoch = ?3, first_revision = ?4, first_seen = ?5
		WHERE resource = ?1 AND namespace IN ('', ?2) AND (first_epoch, first_revision) < (?3, ?4) AND first_revision > 0`
)

const (
	// sweepEvery is how often retention is applied, and sweepRows bounds the rows of one
	// batch.
	sweepEvery = time.Minute
	sweepRows  = 2000
	// sizeRows is how many rows are deleted until the size is measured again.
	sizeRows = 10
)

// expire deletes rows that ended before the retention, then those that are thinned out, compresses the rest, and then,
// as long as the file has more than MaxSize, deletes those that ended first. It returns what it has deleted. messages
// is the number of those in the batch, whose objects have so many bytes.
func (s *Sink) expire(ctx context.Context, now time.Time, messages, bytes int) (all []sink.Expiry, err error) {
	now = s.clock.Bound(now)
	if now.Sub(s.writer.swept) >= sweepEvery {
		e := sink.Expiry{Reason: sink.ExpiredByAge}
		if err := s.expireAged(ctx, &e, now); err != nil {
			return nil, err
		}
		if e.States < s.sweep { // otherwise the next batch continues
			s.writer.swept = now
		}
		if e.States > 0 {
			all = append(all, e)
		}
	}
	// More rows than the batch can have added, so that the rest does not grow however many changes there are.
	most := s.sweep + 2*messages
	// A step of the thinning reads each row three times.
	thinned, err := s.thinner.Step(ctx, tables{s.conn, s.compressor}, now, 3*most)
	if err != nil {
		return nil, err
	}
	if thinned.States > 0 {
		all = append(all, thinned)
	}
	if err := s.compress(ctx, now, bytes); err != nil {
		return nil, err
	}
	if s.options.MaxSize > 0 {
		// Those that the batch has added are whole, and those that are deleted may be compressed, to minCompressed bytes or
		// more.
		e, err := s.shrink(ctx, most+bytes/minCompressed)
		if err != nil {
			return nil, err
		}
		if e.States > 0 || e.Excess != s.excess {
			all = append(all, e)
		}
	}
	return all, nil
}

// expireAged deletes rows that ended before the retention, up to s.sweep.
func (s *Sink) expireAged(ctx context.Context, e *sink.Expiry, now time.Time) error {
	border := func(span time.Duration) string { return now.Add(-span).Format(timeFormat) }
	if len(s.options.RetentionOf) == 0 {
		if s.options.Retention == 0 {
			return nil
		}
		return s.expireRows(ctx, e, s.writer.aged, border(s.options.Retention), s.sweep)
	}
	streams, err := (tables{conn: s.conn}).Status(ctx)
	if err != nil {
		return err
	}
	for resource, span := range history.Retained(streams, s.options.Retention, s.options.RetentionOf) {
		if e.States >= s.sweep {
			break // the next batch continues
		}
		if err := s.expireRows(ctx, e, s.writer.agedOf, resource, border(span), s.sweep-e.States); err != nil {
			return err
		}
	}
	return nil
}

// shrink deletes the rows that ended first, as long as there are some, the file has more than MaxSize, and fewer than
// most were deleted: the next batch continues.
func (s *Sink) shrink(ctx context.Context, most int) (sink.Expiry, error) {
	e := sink.Expiry{Reason: sink.ExpiredBySize}
	for e.States < most {
		size, err := s.size(ctx)
		if err != nil || size <= s.options.MaxSize {
			return e, err
		}
		before := e.States
		if err := s.expireRows(ctx, &e, s.writer.oldest, sizeRows); err != nil {
			return e, err
		}
		if e.States == before {
			e.Excess = size - s.options.MaxSize
			return e, nil
		}
	}
	return e, nil
}

// size returns the bytes of the pages that are in use. SQLite fills the others before the file grows.
func (s *Sink) size(ctx context.Context) (size int64, err error) {
	err = s.conn.QueryRowContext(ctx, `SELECT (page_count - freelist_count) * page_size
		FROM pragma_page_count, pragma_freelist_count, pragma_page_size`).Scan(&size)
	return size, err
}

// place is a namespace of a resource.
type place struct{ resource, namespace string }

// end is the end of a row.
type end struct {
	sink.Point
	seen string
}

// expireRows deletes rows by a statement, adds them to e, and moves the points at which the histories of
// their resources begin.
func (s *Sink) expireRows(ctx context.Context, e *sink.Expiry, statement *sql.Stmt, args ...any) error {
	last, bases, err := lastEnds(ctx, e, statement, args...)
	if err == nil {
		err = s.compressor.release(ctx, s.conn, bases)
	}
	if err != nil {
		return err
	}
	for in, end := range last {
		if _, err := s.conn.ExecContext(ctx, moveFirst, in.resource, in.namespace, end.Epoch, int64(end.Revision),
			end.seen); err != nil {
			return err
		}
		seen, err := parseTime(end.seen)
		if err != nil {
			return err
		}
		if seen.After(e.Until) {
			e.Until = seen
		}
	}
	return nil
}

// lastEnds deletes rows, counts them, and returns the last end of those of each place, and the bases of which some
// were.
func lastEnds(ctx context.Context, e *sink.Expiry, statement *sql.Stmt, args ...any) (last map[place]end,
	bases map[int64]bool, err error) {
	rows, err := statement.QueryContext(ctx, args...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	last, bases = map[place]end{}, map[int64]bool{}
	for rows.Next() {
		var in place
		var of end
		var revision, base int64
		if err := rows.Scan(&in.resource, &in.namespace, &of.Epoch, &revision, &of.seen, &base); err != nil {
			return nil, nil, err
		}
		of.Revision = keepwatch.Revision(revision)
		if last[in].Before(of.Point) {
			last[in] = of
		}
		if base != 0 {
			bases[base] = true
		}
		e.States++
	}
	return last, bases, rows.Err()
}
