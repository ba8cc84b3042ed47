package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

const (
	stayColumns = `SELECT id, resource, namespace, name, uid, epoch, valid_from, seen_from, coalesce(to_epoch, 0), coalesce(valid_to, 0),
		coalesce(seen_to, seen_from), deleted FROM states`
	// One statement for each row always uses the primary key.
	extendRow = `UPDATE states SET to_epoch = $1, valid_to = $2, seen_to = $3
		WHERE resource = $4 AND namespace = $5 AND name = $6 AND id = (SELECT id FROM states
			WHERE resource = $4 AND namespace = $5 AND name = $6 AND id < $7 ORDER BY id DESC LIMIT 1)
		AND uid = $8 AND to_epoch = $9 AND valid_to = $10 AND NOT deleted`
	deleteRow = `DELETE FROM states WHERE resource = $1 AND namespace = $2 AND name = $3 AND id = $4 RETURNING ` +
		bytesOfRow + `, coalesce(group_id, 0)`
	takeGaps = `DELETE FROM gaps WHERE reason = 'thinned' AND resource = $1 AND namespace = $2 AND epoch = $3 AND ended > $4 AND ended <= $5
		RETURNING from_revision, to_revision, began, ended`
	insertThinned = `INSERT INTO gaps (resource, namespace, epoch, from_revision, to_revision, began, seen, ended, reason)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, 'thinned')`
	forgetGaps = `DELETE FROM gaps WHERE reason = 'thinned' AND resource = $1 AND namespace = $2 AND ended <= $3
		AND (epoch, to_revision) <= ($4, $5)`
)

// tables are the tables in a transaction. bytes is the size of all states.
type tables struct {
	tx    pgx.Tx
	bytes *int64
}

var _ history.ThinTables = tables{}

// Status returns the status of every stream.
func (t tables) Status(ctx context.Context) ([]sink.Status, error) {
	return statusIn(ctx, t.tx, len(migrations))
}

// Thinned returns the border up to which the history was thinned.
func (t tables) Thinned(ctx context.Context, interval time.Duration, finest bool) (time.Time, error) {
	return t.time(ctx, `SELECT coalesce((SELECT border FROM thinning WHERE seconds = $1),
		(SELECT thinned FROM keepwatch WHERE $2))`, int64(interval/time.Second), finest)
}

// NextEnd returns the first time after another one at which a row has ended.
func (t tables) NextEnd(ctx context.Context, after time.Time) (time.Time, error) {
	return t.time(ctx, `SELECT min(seen_to) FROM states WHERE seen_to > $1`, after)
}

// time returns the time that a query finds, zero for NULL.
func (t tables) time(ctx context.Context, query string, args ...any) (time.Time, error) {
	var found *time.Time
	if err := t.tx.QueryRow(ctx, query, args...).Scan(&found); err != nil || found == nil {
		return time.Time{}, err
	}
	return found.UTC(), nil
}

// SetThinned stores the border up to which the history was thinned.
func (t tables) SetThinned(ctx context.Context, interval time.Duration, border time.Time) error {
	_, err := t.tx.Exec(ctx, `INSERT INTO thinning (seconds, border) VALUES ($1, $2)
		ON CONFLICT (seconds) DO UPDATE SET border = excluded.border`, int64(interval/time.Second), border)
	return err
}

// Gaps returns the gaps that a stream has declared, and that touch a range of time.
func (t tables) Gaps(ctx context.Context, from, to time.Time) ([]sink.StoredGap, error) {
	rows, err := t.tx.Query(ctx, `SELECT resource, namespace FROM gaps
		WHERE reason <> 'thinned' AND coalesce(began, seen) <= $1 AND (ended IS NULL OR ended >= $2)`, to, from)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (g sink.StoredGap, err error) {
		return g, row.Scan(&g.Resource, &g.Namespace)
	})
}

// Rows returns rows in the order of a time.
func (t tables) Rows(ctx context.Context, by history.Edge, behind history.Mark, upTo time.Time,
	limit int) ([]history.Stay, error) {
	column := "seen_from"
	if by == history.Ends {
		column = "seen_to"
	}
	rows, err := t.tx.Query(ctx, fmt.Sprintf(stayColumns+` WHERE %[1]s >= $1 AND (%[1]s, id) > ($1, $2) AND %[1]s <= $3
		ORDER BY %[1]s, id LIMIT $4`, column), behind.Time, behind.ID, upTo, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r history.Stay, err error) {
		err = row.Scan(&r.ID, &r.Resource, &r.Namespace, &r.Name, &r.UID, &r.From.Epoch, &r.From.Revision, &r.SeenFrom,
			&r.To.Epoch, &r.To.Revision, &r.SeenTo, &r.Deleted)
		r.SeenFrom, r.SeenTo = r.SeenFrom.UTC(), r.SeenTo.UTC()
		return r, err
	})
}

// Replace deletes rows, and moves the ends of those before them.
func (t tables) Replace(ctx context.Context, rows []history.Stay, chains []history.Chain) error {
	b, groups := &pgx.Batch{}, map[int64]bool{}
	for _, c := range chains {
		f := c.First
		b.Queue(extendRow, c.To.Epoch, int64(c.To.Revision), c.SeenTo, f.Resource, f.Namespace, f.Name, f.ID, f.UID,
			f.From.Epoch, int64(f.From.Revision))
	}
	for _, r := range rows {
		b.Queue(deleteRow, r.Resource, r.Namespace, r.Name, r.ID).QueryRow(func(row pgx.Row) error {
			var bytes, group int64
			err := row.Scan(&bytes, &group)
			*t.bytes -= bytes
			if group != 0 {
				groups[group] = true
			}
			return err
		})
	}
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return release(ctx, t.tx, slices.Sorted(maps.Keys(groups)), true)
}

// TakeGaps deletes the gaps of thinning of a range, and returns them.
func (t tables) TakeGaps(ctx context.Context, of sink.StoredGap, from, to time.Time) ([]sink.StoredGap, error) {
	rows, err := t.tx.Query(ctx, takeGaps, of.Resource, of.Namespace, of.Epoch, from, to)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (sink.StoredGap, error) {
		g := of
		err := row.Scan(&g.From, &g.To, &g.Began, &g.Ended)
		g.Began, g.Ended = g.Began.UTC(), g.Ended.UTC()
		return g, err
	})
}

// Declare stores a gap.
func (t tables) Declare(ctx context.Context, g sink.StoredGap) error {
	_, err := t.tx.Exec(ctx, insertThinned, g.Resource, g.Namespace, g.Epoch, int64(g.From), int64(g.To), g.Began, g.Ended)
	return err
}

// Forget deletes the gaps of thinning that ended before the history of a stream begins.
func (t tables) Forget(ctx context.Context, of sink.Status) error {
	_, err := t.tx.Exec(ctx, forgetGaps, of.ID.Resource, of.ID.Namespace, of.FirstSeen, of.First.Epoch,
		int64(of.First.Revision))
	return err
}
