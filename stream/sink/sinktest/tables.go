package sinktest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Tables reads the tables that streams in a database have, with the dialect that SQLite and
// Postgres share.
type Tables struct{ DB Queryer }

// Queryer is a *sql.DB or a *sql.Tx.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Row is a state of an object in the tables.
type Row struct {
	Resource, Namespace, Name, UID string
	Revision                       keepwatch.Revision
	Object                         string
}

const rowColumns = `SELECT resource, namespace, name, uid, valid_from, object FROM resources WHERE `

// AsOf returns the rows of a line that are valid at a cut.
func (t Tables) AsOf(ctx context.Context, line int, cut sink.Cut) ([]Row, error) {
	return t.rows(ctx, fmt.Sprintf(rowColumns+`resource IN (SELECT resource FROM cursors WHERE line = %[1]d)
		AND (epoch, valid_from) <= (%[2]d, %[3]d) AND (valid_to IS NULL OR (to_epoch, valid_to) > (%[2]d, %[3]d))`, line,
		cut.Epoch, cut.Revision))
}

// Current returns the current rows of a line.
func (t Tables) Current(ctx context.Context, line int) ([]Row, error) {
	return t.rows(ctx,
		fmt.Sprintf(rowColumns+`resource IN (SELECT resource FROM cursors WHERE line = %d) AND valid_to IS NULL`, line))
}

func (t Tables) rows(ctx context.Context, query string) (all []Row, err error) {
	rows, err := t.DB.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r Row
		var revision int64
		if err := rows.Scan(&r.Resource, &r.Namespace, &r.Name, &r.UID, &revision, &r.Object); err != nil {
			return nil, err
		}
		r.Revision = keepwatch.Revision(revision)
		all = append(all, r)
	}
	return all, rows.Err()
}

// rowsWithNext has each row with the next one of the same name.
const rowsWithNext = `(SELECT *, lead(epoch) OVER w AS next_epoch, lead(valid_from) OVER w AS next_from, lead(seen_from) OVER w AS next_seen, lead(uid) OVER w AS next_uid
	FROM resources WINDOW w AS (PARTITION BY resource, namespace, name ORDER BY id)) AS r`

// invariants are queries whose every row is a problem.
var invariants = map[string]string{
	"two rows of one object overlap, or are in the wrong order": `SELECT resource, name, uid FROM ` + rowsWithNext + `
		WHERE next_from IS NOT NULL AND (valid_to IS NULL OR (to_epoch, valid_to) > (next_epoch, next_from) OR seen_to > next_seen)`,
	"one state is stored twice": `SELECT resource, name, uid FROM resources
		GROUP BY resource, namespace, name, uid, epoch, valid_from HAVING count(*) > 1`,
	"an object ended without a deletion": `SELECT resource, name, uid FROM ` + rowsWithNext + `
		WHERE valid_to IS NOT NULL AND NOT deleted AND (next_uid IS NULL OR next_uid <> uid)`,
	"an object was deleted and continues": `SELECT resource, name, uid FROM ` + rowsWithNext + `
		WHERE deleted AND next_uid = uid AND next_epoch = epoch`,
	"the count of a cursor is not that of the rows": `SELECT c.resource, c.namespace, '' FROM cursors c
		WHERE c.objects <> (SELECT count(*) FROM resources r WHERE r.resource = c.resource AND r.valid_to IS NULL AND (c.namespace = '' OR r.namespace = c.namespace))`,
}

// Invariants returns what is wrong in the history of the tables, whatever the sources were.
func (t Tables) Invariants(ctx context.Context) (problems []string, err error) {
	for problem, query := range invariants {
		rows, err := t.DB.QueryContext(ctx, query)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", problem, err)
		}
		for rows.Next() {
			var resource, name, uid string
			if err := rows.Scan(&resource, &name, &uid); err != nil {
				return nil, err
			}
			problems = append(problems, fmt.Sprintf("%s: %s %s %s", problem, resource, name, uid))
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
		rows.Close()
	}
	return problems, nil
}

// compare returns the differences between rows and a state, or nil.
func compare(rows []Row, state map[id]*object, replacesNUL bool) (problems []string) {
	seen := map[id]bool{}
	for _, r := range rows {
		at := id{r.Resource, keepwatch.Key{Namespace: r.Namespace, Name: r.Name}}
		want, ok := state[at]
		if !ok || seen[at] {
			problems = append(problems, fmt.Sprintf("%v is in the tables, and not in the source", at))
			continue
		}
		seen[at] = true
		wanted := want.body()
		if replacesNUL {
			wanted.Note = strings.ReplaceAll(wanted.Note, "\x00", "\ufffd")
		}
		var got body
		if err := json.Unmarshal([]byte(r.Object), &got); err != nil || got != wanted || r.UID != string(want.uid) ||
			r.Revision != want.revision {
			problems = append(problems, fmt.Sprintf("%v is %s/%d %+v, want %+v (%v)", at, r.UID, r.Revision, got, wanted, err))
		}
	}
	for at := range state {
		if !seen[at] {
			problems = append(problems, fmt.Sprintf("%v is missing in the tables", at))
		}
	}
	return problems
}
