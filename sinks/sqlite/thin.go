package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

const (
	stayColumns = `SELECT id, resource, namespace, name, uid, epoch, valid_from, seen_from, coalesce(to_epoch, 0), coalesce(valid_to, 0),
		coalesce(seen_to, ''), deleted FROM states`
	extendRow = `UPDATE states SET to_epoch = ?1, valid_to = ?2, seen_to = ?3 WHERE id = (SELECT id FROM states
			WHERE resource = ?4 AND namespace = ?5 AND name = ?6 AND id < ?7 ORDER BY id DESC LIMIT 1)
		AND uid = ?8 AND to_epoch = ?9 AND valid_to = ?10 AND NOT deleted`
	takeGaps = `DELETE FROM gaps WHERE reason = 'thinned' AND resource = ? AND namespace = ? AND epoch = ? AND ended > ? AND ended <= ?
		RETURNING from_revision, to_revision, began, ended`
	insertThinned = `INSERT INTO gaps (resource, namespace, epoch, from_revision, to_revision, began, seen, ended, reason)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 'thinned')`
	forgetGaps = `DELETE FROM gaps WHERE reason = 'thinned' AND resource = ?1 AND namespace = ?2 AND ended <= ?3
		AND (epoch, to_revision) <= (?4, ?5)`
)

// tables are the tables in a transaction.
type tables struct {
	conn       *sql.Conn
	compressor *compressor
}

var _ history.ThinTables = tables{}

// Status returns the status of every stream.
func (t tables) Status(ctx context.Context) ([]sink.Status, error) {
	rows, err := t.conn.QueryContext(ctx, `SELECT `+cursorColumns+` FROM cursors ORDER BY resource, namespace`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return scanCursors(rows)
}

// Thinned returns the border up to which the history was thinned.
func (t tables) Thinned(ctx context.Context, interval time.Duration, finest bool) (time.Time, error) {
	return t.time(ctx, `SELECT coalesce((SELECT border FROM thinning WHERE seconds = ?),
		(SELECT thinned FROM keepwatch WHERE ?), '')`, int64(interval/time.Second), finest)
}

// NextEnd returns the first time after another one at which a row has ended.
func (t tables) NextEnd(ctx context.Context, after time.Time) (time.Time, error) {
	return t.time(ctx, `SELECT coalesce(min(seen_to), '') FROM states WHERE seen_to > ?`, textOf(after))
}

// time returns the time that a query finds.
func (t tables) time(ctx context.Context, query string, args ...any) (time.Time, error) {
	var text string
	if err := t.conn.QueryRowContext(ctx, query, args...).Scan(&text); err != nil {
		return time.Time{}, err
	}
	return parseTime(text)
}

// textOf returns a time as a column has it, empty if it is zero.
func textOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeFormat)
}

// SetThinned stores the border up to which the history was thinned.
func (t tables) SetThinned(ctx context.Context, interval time.Duration, border time.Time) error {
	_, err := t.conn.ExecContext(ctx, `INSERT INTO thinning (seconds, border) VALUES (?, ?)
		ON CONFLICT (seconds) DO UPDATE SET border = excluded.border`, int64(interval/time.Second), textOf(border))
	return err
}

// Gaps returns the gaps that a stream has declared, and that touch a range of time.
func (t tables) Gaps(ctx context.Context, from, to time.Time) (all []sink.StoredGap, err error) {
	rows, err := t.conn.QueryContext(ctx, `SELECT resource, namespace FROM gaps
		WHERE reason <> 'thinned' AND coalesce(began, seen) <= ? AND (ended IS NULL OR ended >= ?)`, textOf(to), textOf(from))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var g sink.StoredGap
		if err := rows.Scan(&g.Resource, &g.Namespace); err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, rows.Err()
}

// Rows returns rows in the order of a time.
func (t tables) Rows(ctx context.Context, by history.Edge, behind history.Mark, upTo time.Time,
	limit int) (all []history.Stay, err error) {
	column := "seen_from"
	if by == history.Ends {
		column = "seen_to"
	}
	rows, err := t.conn.QueryContext(ctx,
		fmt.Sprintf(stayColumns+` WHERE %[1]s IS NOT NULL AND (%[1]s, id) > (?, ?) AND %[1]s <= ?
		ORDER BY %[1]s, id LIMIT ?`, column), textOf(behind.Time), behind.ID, textOf(upTo), limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r history.Stay
		var from, to int64
		var seenFrom, seenTo string
		if err := rows.Scan(&r.ID, &r.Resource, &r.Namespace, &r.Name, &r.UID, &r.From.Epoch, &from, &seenFrom, &r.To.Epoch,
			&to, &seenTo,
			&r.Deleted); err != nil {
			return nil, err
		}
		r.From.Revision, r.To.Revision = keepwatch.Revision(from), keepwatch.Revision(to)
		if r.SeenFrom, err = parseTime(seenFrom); err != nil {
			return nil, err
		}
		if r.SeenTo, err = parseTime(seenTo); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// Replace deletes rows, and moves the ends of those before them.
func (t tables) Replace(ctx context.Context, rows []history.Stay, chains []history.Chain) error {
	for _, c := range chains {
		f := c.First
		if _, err := t.conn.ExecContext(ctx, extendRow, c.To.Epoch, int64(c.To.Revision), textOf(c.SeenTo), f.Resource,
			f.Namespace, f.Name,
			f.ID, f.UID, f.From.Epoch, int64(f.From.Revision)); err != nil {
			return err
		}
	}
	bases := map[int64]bool{}
	for _, r := range rows {
		var base int64
		err := t.conn.QueryRowContext(ctx, `DELETE FROM states WHERE id = ? RETURNING coalesce(base, 0)`, r.ID).Scan(&base)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if base != 0 {
			bases[base] = true
		}
	}
	return t.compressor.release(ctx, t.conn, bases)
}

// TakeGaps deletes the gaps of thinning of a range, and returns them.
func (t tables) TakeGaps(ctx context.Context, of sink.StoredGap, from, to time.Time) (all []sink.StoredGap, err error) {
	rows, err := t.conn.QueryContext(ctx, takeGaps, of.Resource, of.Namespace, of.Epoch, textOf(from), textOf(to))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		g := of
		var first, last int64
		var began, ended string
		if err := rows.Scan(&first, &last, &began, &ended); err != nil {
			return nil, err
		}
		g.From, g.To = keepwatch.Revision(first), keepwatch.Revision(last)
		if g.Began, err = parseTime(began); err != nil {
			return nil, err
		}
		if g.Ended, err = parseTime(ended); err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, rows.Err()
}

// Declare stores a gap.
func (t tables) Declare(ctx context.Context, g sink.StoredGap) error {
	_, err := t.conn.ExecContext(ctx, insertThinned, g.Resource, g.Namespace, g.Epoch, int64(g.From), int64(g.To),
		textOf(g.Began), textOf(g.Ended))
	return err
}

// Forget deletes the gaps of thinning that ended before the history of a stream begins.
func (t tables) Forget(ctx context.Context, of sink.Status) error {
	_, err := t.conn.ExecContext(ctx, forgetGaps, of.ID.Resource, of.ID.Namespace, textOf(of.FirstSeen), of.First.Epoch,
		int64(of.First.Revision))
	return err
}
