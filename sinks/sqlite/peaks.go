package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/history"
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
	// A resource has a first time since its first list is complete.
	selectFills    = `SELECT resource, min(first_seen) FROM cursors WHERE first_revision > 0 GROUP BY resource ORDER BY resource`
	selectEarliest = `SELECT epoch, revision, seen FROM peaks WHERE resource = ? ORDER BY seen LIMIT 1`
	selectStored   = `SELECT * FROM (SELECT epoch AS e, valid_from AS r, seen_from AS s FROM states
				WHERE resource = ?1 AND (epoch, valid_from, seen_from) < (?2, ?3, ?4)
				ORDER BY epoch DESC, valid_from DESC, seen_from DESC LIMIT ?5)
			UNION ALL SELECT * FROM (SELECT to_epoch, valid_to, seen_to FROM states
				WHERE resource = ?1 AND valid_to IS NOT NULL AND (to_epoch, valid_to, seen_to) < (?2, ?3, ?4)
				ORDER BY to_epoch DESC, valid_to DESC, seen_to DESC LIMIT ?5)
		ORDER BY e DESC, r DESC, s DESC LIMIT ?5`
	// One that is found later at the same time has a point that is not after the one before.
	fillPeak = `INSERT INTO peaks (resource, seen, epoch, revision) VALUES (?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET epoch = excluded.epoch, revision = excluded.revision`
	selectPeak = `SELECT epoch, revision FROM peaks WHERE resource = ? AND seen > ? ORDER BY seen LIMIT 1`
)

// loadPeaks begins with the peaks that the file has.
func (s *Sink) loadPeaks(ctx context.Context) error {
	var text sql.NullString
	if err := s.conn.QueryRowContext(ctx, `SELECT max(seen) FROM peaks`).Scan(&text); err != nil {
		return err
	}
	newest, err := parseTime(text.String)
	if err != nil {
		return err
	}
	rows, err := s.conn.QueryContext(ctx, selectFills)
	if err != nil {
		return err
	}
	defer rows.Close()
	var fills []*history.Fill
	for rows.Next() {
		f, first := &history.Fill{}, ""
		if err := rows.Scan(&f.Resource, &first); err != nil {
			return err
		}
		if f.First, err = parseTime(first); err != nil {
			return err
		}
		fills = append(fills, f)
	}
	s.peaks.Load(newest, fills)
	return rows.Err()
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

// fillPeaks stores the next peaks of what a version without them has stored.
func (s *Sink) fillPeaks(ctx context.Context, now time.Time) error {
	f := s.peaks.Filling(now)
	if f == nil {
		return nil
	}
	if !f.Begun() {
		earliest, err := s.earliestPeak(ctx, f.Resource, now)
		if errors.Is(err, sql.ErrNoRows) { // no states
			s.peaks.Filled()
			return nil
		}
		if err != nil {
			return err
		}
		f.Begin(earliest)
	}
	stored, err := s.storedBefore(ctx, f.Resource, f.Next)
	if err != nil {
		return err
	}
	peaks, done := f.Add(stored, s.peaks.Every)
	for _, p := range peaks {
		if _, err := s.conn.ExecContext(ctx, fillPeak, f.Resource, p.Seen.Format(timeFormat), p.Epoch,
			int64(p.Revision)); err != nil {
			return err
		}
	}
	if done || len(stored) < s.peaks.Rows {
		s.peaks.Filled()
	}
	return nil
}

// earliestPeak returns the earliest peak of a resource, which it stores if there is none.
func (s *Sink) earliestPeak(ctx context.Context, resource string, now time.Time) (history.Stored, error) {
	earliest := func() (history.Stored, error) {
		return scanStored(s.conn.QueryRowContext(ctx, selectEarliest, resource))
	}
	p, err := earliest()
	if !errors.Is(err, sql.ErrNoRows) {
		return p, err
	}
	if _, err := s.conn.ExecContext(ctx, insertPeak, resource, now.Format(timeFormat)); err != nil {
		return p, err
	}
	return earliest()
}

// storedBefore returns the next rows of a resource, the last one first.
func (s *Sink) storedBefore(ctx context.Context, resource string, next history.Stored) (all []history.Stored,
	err error) {
	rows, err := s.conn.QueryContext(ctx, selectStored, resource, next.Epoch, int64(next.Revision),
		next.Seen.Format(timeFormat), s.peaks.Rows)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		p, err := scanStored(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, rows.Err()
}

func scanStored(row interface{ Scan(...any) error }) (p history.Stored, err error) {
	var revision int64
	var seen string
	if err = row.Scan(&p.Epoch, &revision, &seen); err != nil {
		return p, err
	}
	p.Revision = keepwatch.Revision(revision)
	p.Seen, err = parseTime(seen)
	return p, err
}
