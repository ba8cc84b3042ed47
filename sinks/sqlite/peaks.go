package sqlite

import (
	"context"
	"database/sql"
	"time"
)

const (
	endPeaks = `DELETE FROM peaks WHERE seen > ?`
	// One of an equal time is not exceeded: it is about what was stored before that.
	insertPeak = `INSERT OR IGNORE INTO peaks (resource, seen, epoch, revision) SELECT ?1, ?2, epoch, revision FROM (
			SELECT epoch, valid_from AS revision FROM (SELECT epoch, valid_from FROM states WHERE resource = ?1
				ORDER BY epoch DESC, valid_from DESC LIMIT 1)
			UNION ALL SELECT to_epoch, valid_to FROM (SELECT to_epoch, valid_to FROM states WHERE resource = ?1 AND valid_to IS NOT NULL
				ORDER BY to_epoch DESC, valid_to DESC LIMIT 1))
		ORDER BY epoch DESC, revision DESC LIMIT 1`
	// No time before the history of all streams of a resource is asked for.
	expirePeaks = `DELETE FROM peaks WHERE resource = ?1 AND seen < (SELECT min(first_seen) FROM cursors
		WHERE resource = ?1 AND first_revision > 0)`
	selectPeak = `SELECT epoch, revision FROM peaks WHERE resource = ? AND seen > ? ORDER BY seen LIMIT 1`
)

// loadPeaks begins with the peaks that the file has.
func (s *Sink) loadPeaks(ctx context.Context) error {
	var text sql.NullString
	if err := s.conn.QueryRowContext(ctx, `SELECT max(seen) FROM peaks`).Scan(&text); err != nil {
		return err
	}
	newest, err := parseTime(text.String)
	s.peaks.Load(newest)
	return err
}

// storePeaks stores the peaks of resources in a batch with a time.
func (s *Sink) storePeaks(ctx context.Context, resources []string, now time.Time) error {
	text := now.Format(timeFormat)
	if s.peaks.Exceeded(now) {
		if _, err := s.conn.ExecContext(ctx, endPeaks, text); err != nil {
			return err
		}
	}
	for _, resource := range resources {
		if _, err := s.conn.ExecContext(ctx, insertPeak, resource, text); err != nil {
			return err
		}
		if _, err := s.conn.ExecContext(ctx, expirePeaks, resource); err != nil {
			return err
		}
	}
	return nil
}
