package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// timeFormat is that of SQLite's own functions for time, in UTC.
const timeFormat = "2006-01-02 15:04:05.000"

// The columns of a cursor, and the last ones in tables before format 3.
const (
	cursorColumns    = `line, active, epoch, cursor, since, gap, objects, written, identity, position, first_epoch, first_revision, first_seen`
	oldCursorColumns = `line, active, epoch, cursor, since, gap, objects, written, identity, position, epoch, since, ''`
)

// scanCursor reads a row of cursors.
func scanCursor(row interface{ Scan(...any) error }) (found sink.Status, position []byte, err error) {
	var cursor, since, first int64
	var written, identity, firstSeen string
	p := &found.Progress
	if err := row.Scan(&found.Line, &found.Active, &p.Epoch, &cursor, &since, &p.Gap, &found.Count, &written, &identity,
		&position,
		&found.First.Epoch, &first, &firstSeen); err != nil {
		return found, nil, err
	}
	p.Cursor, p.Since, found.First.Revision = keepwatch.Revision(cursor), keepwatch.Revision(since),
		keepwatch.Revision(first)
	found.Time, err = parseTime(written)
	if err == nil {
		found.FirstSeen, err = parseTime(firstSeen)
	}
	if err != nil {
		return found, nil, err
	}
	return found, position, json.Unmarshal([]byte(identity), &found.ID)
}

// parseTime returns the time of a column, zero if that is empty.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return time.Parse(timeFormat, text)
}

// Status opens the file for reading. See [sink.Reader].
func (s *Sink) Status(ctx context.Context) ([]sink.Status, error) {
	return s.readStatus(ctx)
}

func (s *Sink) readStatus(ctx context.Context) (all []sink.Status, err error) {
	history, err := OpenHistory(ctx, s.path)
	if err != nil {
		return nil, err
	}
	err = history.Snapshot(ctx, func(tables sink.Snapshot) error {
		all, err = tables.Status(ctx)
		return err
	})
	return all, errors.Join(err, history.Close())
}

func scanCursors(rows *sql.Rows) (all []sink.Status, err error) {
	for rows.Next() {
		found, _, err := scanCursor(rows)
		if err != nil {
			return nil, fmt.Errorf("the table cursors: %w", err)
		}
		all = append(all, found)
	}
	return all, rows.Err()
}
