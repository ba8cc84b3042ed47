package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

const (
	expireAged = `SELECT resource, namespace, name, id FROM states WHERE seen_to < $1 LIMIT $2`
	// Of one resource. Revisions are not in the order of times: a list ends a state of equal revision at that one.
	expireAgedOf = `SELECT resource, namespace, name, id FROM states WHERE resource = $1 AND seen_to < $2
		ORDER BY seen_to LIMIT $3`
	// As many of the rows that ended first as have so many bytes.
	expireOldest = `SELECT resource, namespace, name, id FROM (
			SELECT resource, namespace, name, id, sum(bytes) OVER (ORDER BY seen_to, id) - bytes AS before
			FROM (SELECT resource, namespace, name, id, seen_to, ` + bytesOfRow + ` AS bytes FROM states
				WHERE seen_to IS NOT NULL ORDER BY seen_to, id LIMIT $2) oldest) summed
		WHERE before < $1::bigint`
	// bytesOfRow is the size of a row's state as JSON, which rows from before format 7 do not have. What Postgres itself
	// says of a size is that of files with dead rows, or of a value that is compressed anew when its row ends.
	bytesOfRow = `coalesce(bytes, octet_length(object::text))`
	// The cursors' first point moves to the last end of the rows that are deleted.
	expireRows = `WITH expired AS (DELETE FROM states WHERE (resource, namespace, name, id) IN (%s)
			RETURNING resource, namespace, to_epoch, valid_to, seen_to, ` + bytesOfRow + ` AS bytes, group_id),
		last AS (SELECT DISTINCT ON (resource, namespace) * FROM expired ORDER BY resource, namespace, to_epoch DESC, valid_to DESC),
		moved AS (UPDATE cursors c SET first_epoch = l.to_epoch, first_revision = l.valid_to, first_seen = l.seen_to
			FROM (SELECT DISTINCT ON (c.resource, c.namespace) c.resource, c.namespace, to_epoch, valid_to, seen_to FROM last
				JOIN cursors c ON c.resource = last.resource AND c.namespace IN ('', last.namespace)
				ORDER BY c.resource, c.namespace, to_epoch DESC, valid_to DESC) l
			WHERE c.resource = l.resource AND c.namespace = l.namespace AND (c.first_epoch, c.first_revision) < (l.to_epoch, l.valid_to)
				AND c.first_revision > 0)
		SELECT count(*), max(seen_to), coalesce(sum(bytes), 0)::bigint,
			coalesce(array_agg(DISTINCT group_id) FILTER (WHERE group_id IS NOT NULL), '{}') FROM expired`
)

const (
	// sweepEvery is how often retention is applied, and sweepRows bounds the rows of one
	// batch.
	sweepEvery = time.Minute
	sweepRows  = 2000
)

// expire deletes rows that ended before the retention, then those that are thinned out, and then, as long as all have
// more than MaxSize, those that ended first. It returns what it has deleted. messages is the number of those in the
// batch.
func (s *Sink) expire(ctx context.Context, tx pgx.Tx, now time.Time, messages int) (all []sink.Expiry, err error) {
	now = s.clock.Bound(now)
	aged, err := s.expireAged(ctx, tx, now)
	if err != nil {
		return nil, err
	}
	// More rows than the batch can have added. A step of the thinning reads each of them three times.
	most := s.sweep + 2*messages
	thinned, err := s.thinner.Step(ctx, tables{tx, &s.bytes}, now, 3*most)
	if err != nil {
		return nil, err
	}
	excess, err := s.shrink(ctx, tx, most)
	for _, e := range []sink.Expiry{aged, thinned, excess} {
		if e.States > 0 || e.Reason == sink.ExpiredBySize && e.Excess != s.excess {
			all = append(all, e)
		}
	}
	return all, err
}

// expireAged deletes rows that ended before the retention.
func (s *Sink) expireAged(ctx context.Context, tx pgx.Tx, now time.Time) (sink.Expiry, error) {
	e := sink.Expiry{Reason: sink.ExpiredByAge}
	if now.Sub(s.swept) < sweepEvery {
		return e, nil
	}
	err := s.expireAgedRows(ctx, tx, &e, now)
	if err != nil || e.States >= s.sweep {
		return e, err // the next batch continues
	}
	s.swept = now
	return e, nil
}

func (s *Sink) expireAgedRows(ctx context.Context, tx pgx.Tx, e *sink.Expiry, now time.Time) error {
	if len(s.options.RetentionOf) == 0 {
		if s.options.Retention == 0 {
			return nil
		}
		return s.expireRows(ctx, tx, e, expireAged, now.Add(-s.options.Retention), s.sweep)
	}
	streams, err := statusIn(ctx, tx, len(migrations))
	if err != nil {
		return err
	}
	for resource, span := range history.Retained(streams, s.options.Retention, s.options.RetentionOf) {
		if e.States >= s.sweep {
			break
		}
		if err := s.expireRows(ctx, tx, e, expireAgedOf, resource, now.Add(-span), s.sweep-e.States); err != nil {
			return err
		}
	}
	return nil
}

// shrink deletes as many of the rows that ended first as have more than what is too much, at most so many: the next
// batch continues.
func (s *Sink) shrink(ctx context.Context, tx pgx.Tx, most int) (sink.Expiry, error) {
	e := sink.Expiry{Reason: sink.ExpiredBySize}
	tooMuch := s.bytes - s.options.MaxSize
	if s.options.MaxSize == 0 || tooMuch <= 0 {
		return e, nil
	}
	err := s.expireRows(ctx, tx, &e, expireOldest, tooMuch, most)
	if e.States < most {
		e.Excess = max(0, s.bytes-s.options.MaxSize)
	}
	return e, err
}

// expireRows deletes the rows that a query selects, adds them to e, and moves the points at which the histories of
// their resources begin.
func (s *Sink) expireRows(ctx context.Context, tx pgx.Tx, e *sink.Expiry, query string, args ...any) error {
	var until *time.Time
	var bytes int64
	var groups []int64
	states := 0
	err := tx.QueryRow(ctx, fmt.Sprintf(expireRows, query), args...).Scan(&states, &until, &bytes, &groups)
	e.States += states
	if until != nil && until.After(e.Until) {
		e.Until = until.UTC()
	}
	s.bytes -= bytes
	if err != nil {
		return err
	}
	return release(ctx, tx, groups, false)
}

// measure reads how many bytes all states have.
func (s *Sink) measure(ctx context.Context, tx pgx.Tx) error {
	if s.options.MaxSize == 0 {
		return nil
	}
	return tx.QueryRow(ctx, `SELECT coalesce(sum(`+bytesOfRow+`), 0)::bigint FROM states`).Scan(&s.bytes)
}
