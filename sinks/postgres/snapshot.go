package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// snapshot is a transaction that reads.
type snapshot struct {
	tx     pgx.Tx
	sink   *Sink // has the connection
	gaps   *history.Gaps
	format int
}

func (s *snapshot) Status(ctx context.Context) ([]sink.Status, error) {
	all, err := statusIn(ctx, s.tx, s.format)
	if err != nil {
		return nil, s.sink.failure(err)
	}
	return all, nil
}

func (s *snapshot) Gaps(ctx context.Context) ([]sink.StoredGap, error) {
	if s.format < 5 {
		return s.readGaps(ctx)
	}
	var state history.GapsState
	err := s.tx.QueryRow(ctx, `SELECT coalesce(max(id), 0), `+history.QueryGapsState+` FROM gaps`).
		Scan(&state.Last, &state.Count, &state.Ended, &state.From, &state.To)
	if err != nil {
		return nil, s.sink.failure(err)
	}
	return s.gaps.Get(state, func() ([]sink.StoredGap, error) { return s.readGaps(ctx) })
}

func (s *snapshot) readGaps(ctx context.Context) (all []sink.StoredGap, err error) {
	times := `began, ended`
	if s.format < 5 {
		times = `NULL::timestamptz, seen`
	}
	err = s.query(ctx, func(row pgx.Rows) error {
		var g sink.StoredGap
		var began, ended *time.Time
		err := row.Scan(&g.Resource, &g.Namespace, &g.Epoch, &g.From, &g.To, &g.Reason, &g.Seen, &began, &ended)
		g.Seen = g.Seen.UTC()
		if began != nil {
			g.Began = began.UTC()
		}
		if ended != nil {
			g.Ended = ended.UTC()
		}
		all = append(all, g)
		return err
	}, `SELECT resource, namespace, epoch, from_revision, to_revision, reason, seen, `+times+` FROM gaps ORDER BY id`)
	return all, err
}

func (s *snapshot) Types(ctx context.Context) (all []sink.StoredType, err error) {
	if s.format < 4 {
		return nil, nil
	}
	err = s.query(ctx, func(row pgx.Rows) error {
		var text []byte
		var found sink.StoredType
		if err := row.Scan(&found.Resource, &found.Seen, &text); err != nil {
			return err
		}
		found.Seen = found.Seen.UTC()
		found.Type, err = history.ParseType(text)
		all = append(all, found)
		return err
	}, `SELECT resource, seen, type FROM types ORDER BY id`)
	return all, err
}

const (
	stateColumns = `SELECT id, namespace, coalesce(full_name, name), uid, epoch, valid_from, seen_from, to_epoch, valid_to, seen_to, deleted, `
	ofResource   = ` FROM resources WHERE resource = $1`
)

// conditions are those of a query for states, and its values.
type conditions struct {
	all    []string
	values []any
}

// add adds a condition. Each %s in it stands for one of the values.
func (c *conditions) add(condition string, values ...any) {
	numbers := make([]any, len(values))
	for i, value := range values {
		c.values = append(c.values, value)
		numbers[i] = fmt.Sprint("$", len(c.values))
	}
	c.all = append(c.all, fmt.Sprintf(condition, numbers...))
}

// compare adds a comparison of the point of two columns with another one.
func (c *conditions) compare(columns, operator string, p sink.Point) {
	c.add("("+columns+") "+operator+" (%s, %s)", p.Epoch, int64(p.Revision))
}

// within adds that the point of two columns is after one and not after another one. If both are in one epoch, that is a
// range of the index: what compares rows reads it to its end.
func (c *conditions) within(columns string, after, upTo sink.Point) {
	if after.Epoch != upTo.Epoch {
		c.compare(columns, ">", after)
		c.compare(columns, "<=", upTo)
		return
	}
	epoch, revision, _ := strings.Cut(columns, ", ")
	c.add(epoch+" = %s AND "+revision+" > %s AND "+revision+" <= %s", after.Epoch, int64(after.Revision),
		int64(upTo.Revision))
}

// or returns the conditions that the functions add, of which one must be true.
func (c *conditions) or(either ...func()) {
	before := c.all
	var alternatives []string
	for _, add := range either {
		c.all = nil
		add()
		alternatives = append(alternatives, strings.Join(c.all, " AND "))
	}
	c.all = append(before, "("+strings.Join(alternatives, " OR ")+")")
}

// The columns of the points at which a state begins and ends. Of the index of ends Postgres makes use where a condition
// says that there is one.
const (
	beginPoint = "epoch, valid_from"
	endPoint   = "to_epoch, valid_to"
	hasEnded   = "valid_to IS NOT NULL"
)

// withoutIndex returns columns as no index has them. Postgres takes many states at one point for few, until it has
// analyzed the table after them: by the index of points it reads all of them, and by that of objects only those of some
// names.
func withoutIndex(columns string) string { return strings.ReplaceAll(columns, ", ", " + 0, ") + " + 0" }

func (s *snapshot) States(ctx context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	query, values := statesQuery(q)
	var failed error // of yield
	err := s.query(ctx, func(row pgx.Rows) error {
		state, err := scanState(row, q.Resource, !q.WithoutObjects)
		if err == nil {
			failed = yield(state)
			err = failed
		}
		return err
	}, query, values...)
	if failed != nil {
		return failed
	}
	return err
}

// statesQuery returns the SQL of a query, and its values.
func statesQuery(q sink.StateQuery) (query string, values []any) {
	columns := stateColumns + "object"
	if q.WithoutObjects {
		columns = stateColumns + "NULL::jsonb"
	}
	c := &conditions{}
	c.add("resource = %s", q.Resource)
	if q.Namespace != "" || q.Name != "" || len(q.Names) > 0 {
		c.add("namespace = %s", text(q.Namespace))
	}
	if q.Name != "" {
		name, _ := indexed(q.Name)
		c.add("name = %s", name)
	}
	if len(q.Names) > 0 {
		names := make([]string, len(q.Names))
		for i, name := range q.Names {
			names[i], _ = indexed(name)
		}
		c.add("name = ANY(%s)", names)
	}
	if q.After != nil && q.UpTo != nil {
		begin, end := beginPoint, endPoint
		if len(q.Names) > 0 {
			begin, end = withoutIndex(begin), withoutIndex(end)
		}
		c.or(func() { c.within(begin, *q.After, *q.UpTo) }, func() {
			c.add(hasEnded)
			c.within(end, *q.After, *q.UpTo)
		})
	}
	if !q.Since.IsZero() {
		since := q.Since.UTC()
		c.add("(seen_from >= %s OR seen_to >= %s)", since, since)
	}
	from := func() string { return columns + " FROM resources WHERE " + strings.Join(c.all, " AND ") }
	switch at, not := q.At, q.NotAt; {
	case at == nil:
		query = from()
	case not != nil && !not.Before(*at): // those that have ended until then
		c.compare(beginPoint, "<=", *at)
		c.add(hasEnded)
		c.within(endPoint, *at, *not)
		query = from()
	case not != nil: // those that have begun since
		c.within(beginPoint, *not, *at)
		c.or(func() { c.add("valid_to IS NULL") }, func() { c.compare(endPoint, ">", *at) })
		query = from()
	default: // those that have ended since, and the current ones, each by their index
		c.compare(beginPoint, "<=", *at)
		shared := c.all
		c.add("valid_to IS NULL")
		query = from() + " UNION ALL "
		c.all = shared
		c.add(hasEnded)
		c.compare(endPoint, ">", *at)
		query += from()
	}
	if q.Name != "" && q.At == nil {
		query += " ORDER BY namespace, name, id"
	}
	return query, c.values
}

func scanState(row pgx.Rows, resource string, withObject bool) (sink.State, error) {
	s := sink.State{Resource: resource}
	var uid string
	var toEpoch *int
	var to *int64
	var seenTo *time.Time
	err := row.Scan(&s.ID, &s.Key.Namespace, &s.Key.Name, &uid, &s.From.Epoch, &s.From.Revision, &s.SeenFrom, &toEpoch,
		&to, &seenTo, &s.Deleted, &s.Object)
	if err != nil {
		return s, err
	}
	s.Key.Namespace, s.Key.Name, s.UID = original(s.Key.Namespace), original(s.Key.Name), keepwatch.UID(original(uid))
	s.SeenFrom = s.SeenFrom.UTC()
	if to != nil {
		s.To, s.SeenTo = &sink.Point{Epoch: *toEpoch, Revision: keepwatch.Revision(*to)}, seenTo.UTC()
	}
	if withObject && s.Object == nil {
		return s, fmt.Errorf("%s %s at revision %d: the group of the state is damaged", resource, s.Key, s.From.Revision)
	}
	return s, nil
}

func (s *snapshot) Example(ctx context.Context, resource string) (found *sink.State, err error) {
	err = s.query(ctx, func(row pgx.Rows) error {
		state, err := scanState(row, resource, true)
		found = &state
		return err
	}, stateColumns+`object`+ofResource+` ORDER BY seen_from DESC, id DESC LIMIT 1`, resource)
	return found, err
}

// ends are the columns of the beginning and the end of a row.
var ends = [][]any{{"epoch", "valid_from", "seen_from"}, {"to_epoch", "valid_to", "seen_to"}}

func (s *snapshot) PointAt(ctx context.Context, resources []string, at time.Time) (greatest sink.Point, err error) {
	peaks := false
	if s.format >= peaksFormat {
		if err := s.query(ctx, func(row pgx.Rows) error { return row.Scan(&peaks) }, mayReadPeaks); err != nil {
			return greatest, err
		}
	}
	for _, resource := range resources {
		bound, args := ``, []any{resource, at.UTC()}
		if peaks { // nothing behind the next peak was stored until then
			if err := s.query(ctx, func(row pgx.Rows) error {
				var p sink.Point
				err := row.Scan(&p.Epoch, &p.Revision)
				bound, args = ` AND (%[1]s, %[2]s) <= ($3, $4)`, append(args, p.Epoch, int64(p.Revision))
				return err
			}, selectPeak, resource, at.UTC()); err != nil {
				return greatest, err
			}
		}
		for _, columns := range ends {
			query := fmt.Sprintf(`SELECT %[1]s, %[2]s FROM resources WHERE resource = $1 AND %[2]s IS NOT NULL AND %[3]s <= $2`+bound+
				` ORDER BY %[1]s DESC, %[2]s DESC LIMIT 1`, columns...)
			if err := s.query(ctx, func(row pgx.Rows) error {
				var p sink.Point
				err := row.Scan(&p.Epoch, &p.Revision)
				if greatest.Before(p) {
					greatest = p
				}
				return err
			}, query, args...); err != nil {
				return greatest, err
			}
		}
	}
	return greatest, nil
}

func (s *snapshot) PointsAfter(ctx context.Context, resource, namespace string, after sink.Point,
	limit int) (all []sink.Point, err error) {
	for _, columns := range ends {
		query := fmt.Sprintf(`SELECT DISTINCT %[1]s, %[2]s FROM resources WHERE resource = $1 AND ($2 = '' OR namespace = $2)
			AND %[2]s IS NOT NULL AND (%[1]s, %[2]s) > ($3, $4) ORDER BY %[1]s, %[2]s LIMIT $5`, columns[0], columns[1])
		if err := s.query(ctx, func(row pgx.Rows) error {
			var p sink.Point
			err := row.Scan(&p.Epoch, &p.Revision)
			all = append(all, p)
			return err
		}, query, resource, text(namespace), after.Epoch, int64(after.Revision), limit); err != nil {
			return nil, err
		}
	}
	return history.FirstPoints(all, limit), nil
}

func (s *snapshot) SeenAt(ctx context.Context, resources []string, at sink.Point) (last time.Time, err error) {
	for _, resource := range resources {
		for _, columns := range ends {
			query := fmt.Sprintf(
				`SELECT %[3]s FROM resources WHERE resource = $1 AND %[2]s IS NOT NULL AND (%[1]s, %[2]s) <= ($2, $3)
				ORDER BY %[1]s DESC, %[2]s DESC LIMIT 1`, columns...)
			if err := s.query(ctx, func(row pgx.Rows) error {
				var seen time.Time
				err := row.Scan(&seen)
				if seen.After(last) {
					last = seen.UTC()
				}
				return err
			}, query, resource, at.Epoch, int64(at.Revision)); err != nil {
				return last, err
			}
		}
	}
	return last, nil
}

// query calls scan with each row of a query.
func (s *snapshot) query(ctx context.Context, scan func(pgx.Rows) error, text string, args ...any) error {
	rows, err := s.tx.Query(ctx, text, args...)
	if err != nil {
		return s.sink.failure(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return s.sink.failure(err)
		}
	}
	if err := rows.Err(); err != nil {
		return s.sink.failure(err)
	}
	return nil
}
