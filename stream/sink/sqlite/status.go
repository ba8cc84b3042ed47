package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/internal/history"
)

// timeFormat is that of SQLite's own functions for time, in UTC.
const timeFormat = "2006-01-02 15:04:05.000"

const cursorColumns = `line, active, epoch, cursor, since, gap, objects, written, identity, position`

// scanCursor reads a row of cursors.
func scanCursor(row interface{ Scan(...any) error }) (found sink.Status, position []byte, err error) {
	var cursor, since int64
	var written, identity string
	p := &found.Progress
	if err := row.Scan(&found.Line, &found.Active, &p.Epoch, &cursor, &since, &p.Gap, &found.Count, &written, &identity, &position); err != nil {
		return found, nil, err
	}
	p.Cursor, p.Since = keepwatch.Revision(cursor), keepwatch.Revision(since)
	if written != "" {
		if found.Time, err = time.Parse(timeFormat, written); err != nil {
			return found, nil, err
		}
	}
	return found, position, json.Unmarshal([]byte(identity), &found.ID)
}

// Status opens the file for reading. See [sink.Reader].
func (s *Sink) Status(ctx context.Context) ([]sink.Status, error) {
	status, err := s.readStatus(ctx)
	if err != nil {
		return nil, s.failure(err)
	}
	return status, nil
}

func (s *Sink) readStatus(ctx context.Context) (all []sink.Status, err error) {
	reader := Sink{path: s.path}
	defer func() { err = errors.Join(err, reader.Close()) }()
	if _, err := os.Stat(s.path); err != nil {
		return nil, err
	}
	if err := reader.connect(ctx, "mode=ro&_pragma=busy_timeout(10000)"); err != nil {
		return nil, err
	}
	format, err := reader.format(ctx)
	switch {
	case err != nil:
		return nil, err
	case format == 0:
		return nil, errors.New("it has no tables of keepwatch sync")
	}
	if err := history.CheckFormat(format, len(migrations)); err != nil {
		return nil, err
	}
	rows, err := reader.conn.QueryContext(ctx, `SELECT `+cursorColumns+` FROM cursors ORDER BY resource, namespace`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return scanCursors(rows)
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
