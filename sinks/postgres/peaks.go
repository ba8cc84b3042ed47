package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keepwatch/keepwatch/sinks/internal/history"
)

const (
	endPeaks = `DELETE FROM peaks WHERE seen > $1`
	// One of an equal time is not exceeded: it is about what was stored before that.
	insertPeak = `INSERT INTO peaks (resource, seen, epoch, revision) SELECT $1::text, $2::timestamptz, epoch, revision FROM (
			(SELECT epoch, valid_from AS revision FROM states WHERE resource = $1 ORDER BY epoch DESC, valid_from DESC LIMIT 1)
			UNION ALL (SELECT to_epoch, valid_to FROM states WHERE resource = $1 AND valid_to IS NOT NULL
				ORDER BY to_epoch DESC, valid_to DESC LIMIT 1)) newest
		ORDER BY epoch DESC, revision DESC LIMIT 1 ON CONFLICT DO NOTHING`
	// No time before the history of all streams of a resource is asked for.
	expirePeaks = `DELETE FROM peaks WHERE resource = $1 AND seen < (SELECT min(first_seen) FROM cursors
		WHERE resource = $1 AND first_revision > 0)`
	// A resource has a first time since its first list is complete.
	selectFills    = `SELECT resource, min(first_seen) FROM cursors WHERE first_revision > 0 GROUP BY resource ORDER BY resource`
	selectEarliest = `SELECT epoch, revision, seen FROM peaks WHERE resource = $1 ORDER BY seen LIMIT 1`
	selectStored   = `SELECT * FROM ((SELECT epoch AS e, valid_from AS r, seen_from AS s FROM states
				WHERE resource = $1 AND (epoch, valid_from, seen_from) < ($2::int, $3::bigint, $4::timestamptz)
				ORDER BY epoch DESC, valid_from DESC, seen_from DESC LIMIT $5::bigint)
			UNION ALL (SELECT to_epoch, valid_to, seen_to FROM states
				WHERE resource = $1 AND valid_to IS NOT NULL AND (to_epoch, valid_to, seen_to) < ($2::int, $3::bigint, $4::timestamptz)
				ORDER BY to_epoch DESC, valid_to DESC, seen_to DESC LIMIT $5::bigint)) stored
		ORDER BY e DESC, r DESC, s DESC LIMIT $5::bigint`
	// One that is found later at the same time has a point that is not after the one before.
	fillPeak = `INSERT INTO peaks (resource, seen, epoch, revision) VALUES ($1, $2, $3, $4)
		ON CONFLICT (resource, seen) DO UPDATE SET epoch = excluded.epoch, revision = excluded.revision`
	selectPeak = `SELECT epoch, revision FROM peaks WHERE resource = $1 AND seen > $2 ORDER BY seen LIMIT 1`
	// A role to which somebody has granted each table has not this one.
	mayReadPeaks = `SELECT has_table_privilege('peaks', 'SELECT')`
)

// loadPeaks begins with the peaks that the tables have.
func (s *Sink) loadPeaks(ctx context.Context, tx pgx.Tx) error {
	var newest *time.Time
	if err := tx.QueryRow(ctx, `SELECT max(seen) FROM peaks`).Scan(&newest); err != nil {
		return err
	}
	if newest == nil {
		newest = &time.Time{}
	}
	rows, err := tx.Query(ctx, selectFills)
	if err != nil {
		return err
	}
	fills, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*history.Fill, error) {
		f := &history.Fill{}
		return f, row.Scan(&f.Resource, &f.First)
	})
	s.peaks.Load(*newest, fills)
	return err
}

// storePeaks stores the peaks of resources in a batch with a time.
func (s *Sink) storePeaks(ctx context.Context, tx pgx.Tx, resources []string, now time.Time) error {
	b := &pgx.Batch{}
	if s.peaks.Exceeded(now) {
		b.Queue(endPeaks, now)
	}
	for _, resource := range resources {
		b.Queue(insertPeak, resource, now)
		b.Queue(expirePeaks, resource)
	}
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}

// fillPeaks stores the next peaks of what a version without them has stored.
func (s *Sink) fillPeaks(ctx context.Context, tx pgx.Tx, now time.Time) error {
	f := s.peaks.Filling(now)
	if f == nil {
		return nil
	}
	if !f.Begun() {
		earliest, err := earliestPeak(ctx, tx, f.Resource, now)
		if errors.Is(err, pgx.ErrNoRows) { // no states
			s.peaks.Filled()
			return nil
		}
		if err != nil {
			return err
		}
		f.Begin(earliest)
	}
	rows, err := tx.Query(ctx, selectStored, f.Resource, f.Next.Epoch, int64(f.Next.Revision), f.Next.Seen, s.peaks.Rows)
	if err != nil {
		return err
	}
	stored, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (history.Stored, error) { return scanStored(row) })
	if err != nil {
		return err
	}
	peaks, done := f.Add(stored, s.peaks.Every)
	b := &pgx.Batch{}
	for _, p := range peaks {
		b.Queue(fillPeak, f.Resource, p.Seen, p.Epoch, int64(p.Revision))
	}
	if done || len(stored) < s.peaks.Rows {
		s.peaks.Filled()
	}
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}

// earliestPeak returns the earliest peak of a resource, which it stores if there is none.
func earliestPeak(ctx context.Context, tx pgx.Tx, resource string, now time.Time) (history.Stored, error) {
	p, err := scanStored(tx.QueryRow(ctx, selectEarliest, resource))
	if !errors.Is(err, pgx.ErrNoRows) {
		return p, err
	}
	if _, err := tx.Exec(ctx, insertPeak, resource, now); err != nil {
		return p, err
	}
	return scanStored(tx.QueryRow(ctx, selectEarliest, resource))
}

func scanStored(row pgx.Row) (p history.Stored, err error) {
	err = row.Scan(&p.Epoch, &p.Revision, &p.Seen)
	return p, err
}
