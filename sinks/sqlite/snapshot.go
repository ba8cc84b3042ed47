package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// snapshot is a transaction that reads.
type snapshot struct {
	tx      *sql.Tx
	history *History
	of      *opened
	format  int
	bases   map[int64]*history.Text
	memory  int // bytes of bases
}

func (s *snapshot) Status(ctx context.Context) (all []sink.Status, err error) {
	columns := cursorColumns
	if s.format < 3 {
		columns = oldCursorColumns
	}
	rows, err := s.tx.QueryContext(ctx, `SELECT `+columns+` FROM cursors ORDER BY resource, namespace`)
	if err != nil {
		return nil, s.history.failure(err)
	}
	defer rows.Close()
	if all, err = scanCursors(rows); err != nil {
		return nil, s.history.failure(err)
	}
	return all, nil
}

func (s *snapshot) Gaps(ctx context.Context) ([]sink.StoredGap, error) {
	if s.format < 4 {
		return s.readGaps(ctx)
	}
	var state history.GapsState
	err := s.tx.QueryRowContext(ctx, `SELECT coalesce(max(rowid), 0), `+history.QueryGapsState+` FROM gaps`).
		Scan(&state.Last, &state.Count, &state.Ended, &state.From, &state.To)
	if err != nil {
		return nil, s.history.failure(err)
	}
	return s.history.gaps.Get(state, func() ([]sink.StoredGap, error) { return s.readGaps(ctx) })
}

func (s *snapshot) readGaps(ctx context.Context) (all []sink.StoredGap, err error) {
	times := `coalesce(began, ''), coalesce(ended, '')`
	if s.format < 4 {
		times = `'', seen`
	}
	err = s.query(ctx, func(row *sql.Rows) error {
		var g sink.StoredGap
		var from, to int64
		var texts [3]string
		if err := row.Scan(&g.Resource, &g.Namespace, &g.Epoch, &from, &to, &g.Reason, &texts[0], &texts[1],
			&texts[2]); err != nil {
			return err
		}
		g.From, g.To = keepwatch.Revision(from), keepwatch.Revision(to)
		for i, of := range []*time.Time{&g.Seen, &g.Began, &g.Ended} {
			if *of, err = parseTime(texts[i]); err != nil {
				return err
			}
		}
		all = append(all, g)
		return nil
	}, `SELECT resource, namespace, epoch, from_revision, to_revision, reason, seen, `+times+` FROM gaps ORDER BY rowid`)
	return all, err
}

func (s *snapshot) Types(ctx context.Context) (all []sink.StoredType, err error) {
	if s.format < 3 {
		return nil, nil
	}
	err = s.query(ctx, func(row *sql.Rows) error {
		var seen, text string
		var found sink.StoredType
		if err := row.Scan(&found.Resource, &seen, &text); err != nil {
			return err
		}
		if found.Seen, err = parseTime(seen); err == nil {
			found.Type, err = history.ParseType([]byte(text))
		}
		all = append(all, found)
		return err
	}, `SELECT resource, seen, type FROM types ORDER BY id`)
	return all, err
}

// selectStates returns the beginning of a query for states. by names an index that it must use, empty for any.
func (s *snapshot) selectStates(withoutObjects bool, by string) string {
	table, base, object := `states`, `coalesce(base, 0)`, `object`
	if s.format < 6 { // it compresses none
		table, base = `resources`, `0`
	}
	if withoutObjects {
		base, object = `0`, `''`
	}
	if by != "" {
		table += ` INDEXED BY ` + by
	}
	return fmt.Sprintf(`SELECT id, namespace, name, uid, epoch, valid_from, seen_from, to_epoch, valid_to, seen_to, deleted,
		%s, %s FROM %s WHERE resource = ?`, object, base, table)
}

func (s *snapshot) States(ctx context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	text, args := s.statesQuery(q)
	return s.states(ctx, q.Resource, yield, text, args...)
}

// statesQuery returns the SQL of a query for states, and its values.
func (s *snapshot) statesQuery(q sink.StateQuery) (query string, args []any) {
	text := strings.Builder{}
	args = []any{q.Resource}
	where := func(condition string, values ...any) {
		text.WriteString(` AND ` + condition)
		args = append(args, values...)
	}
	switch {
	case q.Namespace == "" && q.Name == "" && len(q.Names) == 0:
	case q.NotAt != nil && q.Name == "":
		where(`+namespace = ?`, q.Namespace) // not by the index of all states of a namespace
	default:
		where(`namespace = ?`, q.Namespace)
	}
	if q.Name != "" {
		where(`name = ?`, q.Name)
	}
	if len(q.Names) > 0 {
		names := make([]any, len(q.Names))
		for i, name := range q.Names {
			names[i] = name
		}
		where(`name IN (?`+strings.Repeat(`, ?`, len(names)-1)+`)`, names...)
	}
	if q.After != nil && q.UpTo != nil {
		bounds := []any{q.After.Epoch, int64(q.After.Revision), q.UpTo.Epoch, int64(q.UpTo.Revision)}
		where(`((epoch, valid_from) > (?, ?) AND (epoch, valid_from) <= (?, ?)
			OR valid_to IS NOT NULL AND (to_epoch, valid_to) > (?, ?) AND (to_epoch, valid_to) <= (?, ?))`,
			append(bounds, bounds...)...)
	}
	if !q.Since.IsZero() {
		since := q.Since.UTC().Format(timeFormat)
		where(`(seen_from >= ? OR seen_to >= ?)`, since, since)
	}
	if q.At == nil {
		if q.Name != "" {
			text.WriteString(` ORDER BY namespace, name, id`)
		}
		by := ``
		if len(q.Names) > 0 { // SQLite takes many states at one point for few
			by = `resources_history`
		}
		return s.selectStates(q.WithoutObjects, by) + text.String(), args
	}
	if at, not := q.At, q.NotAt; not != nil {
		from, to := []any{at.Epoch, int64(at.Revision)}, []any{not.Epoch, int64(not.Revision)}
		if not.Before(*at) { // those that have begun since
			where(`(epoch, valid_from) > (?, ?) AND (epoch, valid_from) <= (?, ?)
				AND (+valid_to IS NULL OR (+to_epoch, +valid_to) > (?, ?))`, slices.Concat(to, from, from)...)
		} else { // those that have ended until then
			where(`valid_to IS NOT NULL AND (to_epoch, valid_to) > (?, ?) AND (to_epoch, valid_to) <= (?, ?)
				AND (+epoch, +valid_from) <= (?, ?)`, slices.Concat(from, to, from)...)
		}
		return s.selectStates(q.WithoutObjects, ``) + text.String(), args
	}
	// The states that have ended since, which an index has with their beginnings, and the current ones: without its name,
	// SQLite prefers an index of all rows to that of these.
	at := []any{q.At.Epoch, int64(q.At.Revision)}
	began := text.String() + ` AND (+epoch, +valid_from) <= (?, ?)`
	args = append(args, at...)
	query = s.selectStates(q.WithoutObjects, `resources_current`) + began + ` AND valid_to IS NULL UNION ALL ` +
		s.selectStates(q.WithoutObjects, ``) + began + ` AND valid_to IS NOT NULL AND (to_epoch, valid_to) > (?, ?)`
	return query, append(append(slices.Clone(args), args...), at...)
}

// states calls yield with each state of a query.
func (s *snapshot) states(ctx context.Context, resource string, yield func(sink.State) error, text string,
	args ...any) error {
	var failed error // of yield
	err := s.query(ctx, func(row *sql.Rows) error {
		state, err := s.scanState(ctx, row, resource)
		if err == nil {
			failed = yield(state)
			err = failed
		}
		return err
	}, text, args...)
	if failed != nil {
		return failed
	}
	return err
}

func (s *snapshot) scanState(ctx context.Context, row *sql.Rows, resource string) (sink.State, error) {
	state := sink.State{Resource: resource}
	var from int64
	var seenFrom string
	var toEpoch, to sql.NullInt64
	var seenTo sql.NullString
	var base int64
	err := row.Scan(&state.ID, &state.Key.Namespace, &state.Key.Name, &state.UID, &state.From.Epoch, &from, &seenFrom,
		&toEpoch, &to, &seenTo,
		&state.Deleted, &state.Object, &base)
	if err != nil {
		return state, err
	}
	state.From.Revision = keepwatch.Revision(from)
	if to.Valid {
		state.To = &sink.Point{Epoch: int(toEpoch.Int64), Revision: keepwatch.Revision(to.Int64)}
	}
	if state.SeenFrom, err = parseTime(seenFrom); err == nil {
		state.SeenTo, err = parseTime(seenTo.String)
	}
	if base != 0 && err == nil {
		state.Object, err = s.whole(ctx, state, base)
	}
	return state, err
}

// whole returns the object of a compressed state.
func (s *snapshot) whole(ctx context.Context, state sink.State, base int64) ([]byte, error) {
	of, ok := s.bases[base]
	if !ok {
		var text string
		if err := s.tx.QueryRowContext(ctx, `SELECT object FROM bases WHERE id = ?`, base).Scan(&text); err != nil {
			return nil, fmt.Errorf("%s %s at revision %d: the base of the compressed state: %w", state.Resource, state.Key,
				state.From.Revision, err)
		}
		of = history.NewText(text)
		if s.memory += of.Size(); s.memory > baseMemory || s.bases == nil {
			s.bases, s.memory = map[int64]*history.Text{}, of.Size()
		}
		s.bases[base] = of
	}
	object, err := of.Apply(string(state.Object))
	if err != nil {
		return nil, fmt.Errorf("%s %s at revision %d: %w", state.Resource, state.Key, state.From.Revision, err)
	}
	return object, nil
}

func (s *snapshot) Example(ctx context.Context, resource string) (found *sink.State, err error) {
	err = s.query(ctx, func(row *sql.Rows) error {
		state, err := s.scanState(ctx, row, resource)
		found = &state
		return err
	}, s.selectStates(false, ``)+` ORDER BY id DESC LIMIT 1`, resource)
	return found, err
}

// ends are the columns of the beginning and the end of a row, each with an index.
var ends = [][]any{{"epoch", "valid_from", "seen_from"}, {"to_epoch", "valid_to", "seen_to"}}

func (s *snapshot) PointAt(ctx context.Context, resources []string, at time.Time) (greatest sink.Point, err error) {
	until := at.UTC().Format(timeFormat)
	for _, resource := range resources {
		bound, args := ``, []any{resource, until}
		if s.format >= peaksFormat { // nothing behind the next peak was stored until then
			if err := s.query(ctx, func(row *sql.Rows) error {
				p, err := scanPoint(row)
				bound, args = ` AND (%[1]s, %[2]s) <= (?, ?)`, append(args, p.Epoch, int64(p.Revision))
				return err
			}, selectPeak, resource, until); err != nil {
				return greatest, err
			}
		}
		for _, columns := range ends {
			text := fmt.Sprintf(`SELECT %[1]s, %[2]s FROM resources WHERE resource = ? AND %[2]s IS NOT NULL AND %[3]s <= ?`+bound+
				` ORDER BY %[1]s DESC, %[2]s DESC LIMIT 1`, columns...)
			if err := s.query(ctx, func(row *sql.Rows) error {
				p, err := scanPoint(row)
				if greatest.Before(p) {
					greatest = p
				}
				return err
			}, text, args...); err != nil {
				return greatest, err
			}
		}
	}
	return greatest, nil
}

func scanPoint(row *sql.Rows) (p sink.Point, err error) {
	var revision int64
	err = row.Scan(&p.Epoch, &revision)
	p.Revision = keepwatch.Revision(revision)
	return p, err
}

func (s *snapshot) PointsAfter(ctx context.Context, resource, namespace string, after sink.Point,
	limit int) (all []sink.Point, err error) {
	for _, columns := range ends {
		text := fmt.Sprintf(`SELECT DISTINCT %[1]s, %[2]s FROM resources WHERE resource = ?1 AND (?2 = '' OR namespace = ?2)
			AND %[2]s IS NOT NULL AND (%[1]s, %[2]s) > (?3, ?4) ORDER BY %[1]s, %[2]s LIMIT ?5`, columns[:2]...)
		if err := s.query(ctx, func(row *sql.Rows) error {
			p, err := scanPoint(row)
			all = append(all, p)
			return err
		}, text, resource, namespace, after.Epoch, int64(after.Revision), limit); err != nil {
			return nil, err
		}
	}
	return history.FirstPoints(all, limit), nil
}

func (s *snapshot) SeenAt(ctx context.Context, resources []string, at sink.Point) (last time.Time, err error) {
	for _, resource := range resources {
		for _, columns := range ends {
			text := fmt.Sprintf(
				`SELECT %[3]s FROM resources WHERE resource = ? AND %[2]s IS NOT NULL AND (%[1]s, %[2]s) <= (?, ?)
				ORDER BY %[1]s DESC, %[2]s DESC LIMIT 1`, columns...)
			if err := s.query(ctx, func(row *sql.Rows) error {
				var seen string
				if err := row.Scan(&seen); err != nil {
					return err
				}
				found, err := parseTime(seen)
				if found.After(last) {
					last = found
				}
				return err
			}, text, resource, at.Epoch, int64(at.Revision)); err != nil {
				return last, err
			}
		}
	}
	return last, nil
}

// query calls scan with each row of a query.
func (s *snapshot) query(ctx context.Context, scan func(*sql.Rows) error, text string, args ...any) error {
	rows, err := s.tx.QueryContext(ctx, text, args...)
	if err != nil {
		return s.history.failure(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return s.history.failure(err)
		}
	}
	if err := rows.Err(); err != nil {
		return s.history.failure(err)
	}
	return nil
}
