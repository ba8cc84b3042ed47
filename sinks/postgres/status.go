package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// The columns of a cursor, and the last ones in tables before format 4.
const (
	cursorColumns    = `line, active, epoch, cursor, since, gap, objects, written, identity, position, first_epoch, first_revision, first_seen`
	oldCursorColumns = `line, active, epoch, cursor, since, gap, objects, written, identity, position, epoch, since, NULL::timestamptz`
)

// scanCursor reads a row of cursors.
func scanCursor(row pgx.Row) (found sink.Status, position []byte, err error) {
	var written, firstSeen *time.Time
	var identity []byte
	p := &found.Progress
	if err := row.Scan(&found.Line, &found.Active, &p.Epoch, &p.Cursor, &p.Since, &p.Gap, &found.Count, &written,
		&identity, &position,
		&found.First.Epoch, &found.First.Revision, &firstSeen); err != nil {
		return found, nil, err
	}
	if written != nil {
		found.Time = written.UTC()
	}
	if firstSeen != nil {
		found.FirstSeen = firstSeen.UTC()
	}
	if err := json.Unmarshal(identity, &found.ID); err != nil {
		return found, nil, fmt.Errorf("the table cursors: %w", err)
	}
	return found, position, nil
}

// Status connects and reads the cursors. See [sink.Reader].
func (s *Sink) Status(ctx context.Context) ([]sink.Status, error) {
	reader := New(s.address, Options{})
	defer reader.Close()
	all, err := reader.readStatus(ctx)
	if err != nil {
		return nil, reader.failure(err)
	}
	return all, nil
}

func (s *Sink) readStatus(ctx context.Context) ([]sink.Status, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	format, err := formatOf(ctx, s.conn)
	switch {
	case err != nil:
		return nil, err
	case format == 0:
		return nil, errors.New("the schema has no tables of keepwatch sync")
	}
	if err := history.CheckFormat(format, len(migrations)); err != nil {
		return nil, err
	}
	return statusIn(ctx, s.conn, format)
}

// querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func statusIn(ctx context.Context, q querier, format int) ([]sink.Status, error) {
	columns := cursorColumns
	if format < 4 {
		columns = oldCursorColumns
	}
	rows, err := q.Query(ctx, `SELECT `+columns+` FROM cursors ORDER BY resource, namespace`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (sink.Status, error) {
		found, _, err := scanCursor(row)
		return found, err
	})
}
