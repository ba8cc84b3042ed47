package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
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
	s.peaks.Load(*newest)
	return nil
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
