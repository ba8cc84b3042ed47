package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// wholeTime is how long a state stays whole after its end: most questions are about what has happened just now.
	wholeTime = time.Hour
	// groupEvery is how often whole states are looked for, behind the last one to the first one again.
	groupEvery = 10 * time.Minute
	// A group has at most maxMembers states, with about groupBytes as JSON: to read one, Postgres decompresses all.
	maxMembers = 64
	groupBytes = 160 << 10
	// Values below 2 KB are not compressed.
	minGroupBytes = 4 << 10
	// lz4 finds what a text has in common with the 64 KB before it.
	maxGrouped = 48 << 10
	// The states of an object wait for each other until there are fewStates, or waitTime has passed since one has ended,
	// or the object was deleted: in a group with other objects' they take twice as much.
	fewStates = 16
	waitTime  = 24 * time.Hour
	// groupSpan bounds the time between the ends of a group's states: a state's text stays until all of them are deleted.
	groupSpan = 24 * time.Hour
	// stepBytes bounds the states that one batch groups, beside twice as many as it has added itself, and stepRows those
	// that it looks at.
	stepBytes = 2 << 20
	stepRows  = 1000
)

const (
	selectWhole = `SELECT resource, namespace, name, id, seen_to, ` + bytesOfRow + `, deleted FROM states
		WHERE seen_to IS NOT NULL AND group_id IS NULL AND (resource, namespace, name, id) > ($1, $2, $3, $4)
		ORDER BY resource, namespace, name, id LIMIT $5`
	// The subquery for each member always uses the primary key.
	insertGroup = `INSERT INTO groups (members, objects) SELECT count(*), array_agg((SELECT object::text FROM states
			WHERE resource = $1 AND namespace = m.namespace AND name = m.name AND id = m.id) ORDER BY n)
		FROM unnest($2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY AS m(namespace, name, id, n) RETURNING id`
	joinGroup = `UPDATE states SET object = NULL, group_id = $5, member = $6, bytes = ` + bytesOfRow + `
		WHERE resource = $1 AND namespace = $2 AND name = $3 AND id = $4 AND group_id IS NULL`
	// What remains of a group of which more than half was deleted becomes whole again, and joins another one.
	leaveGroup = `UPDATE states s SET object = g.objects[s.member]::jsonb, group_id = NULL, member = NULL FROM groups g
		WHERE g.id = $1 AND s.group_id = $1 AND 2 * (SELECT count(*) FROM states WHERE group_id = $1) < g.members`
	deleteGroup = `DELETE FROM groups WHERE id = $1 AND NOT EXISTS (SELECT FROM states WHERE group_id = $1)`
	canGroup    = `SELECT coalesce((SELECT attcompression = 'l' FROM pg_attribute
		WHERE attrelid = 'groups'::regclass AND attname = 'objects'), false)`
)

// grouper moves states that have ended into groups: one value has the texts of several states, mostly of one object,
// which are similar, and lz4 stores each as what differs from the one before. Postgres decompresses such a value, and
// takes one text of it, with functions of its own.
//
// It goes through all whole states in the order of the primary key, from one batch to the next. Where it is, is not
// stored: it begins anew after a restart.
type grouper struct {
	whole  time.Duration // wholeTime
	few    int           // fewStates
	least  int           // minGroupBytes
	able   bool          // the server has lz4
	done   time.Time     // when it was behind the last state
	behind wholeState
}

// wholeState is a state that has ended and is in no group.
type wholeState struct {
	resource, namespace, name string
	id                        int64
	ended                     time.Time
	bytes                     int
	deleted                   bool
}

func (s wholeState) isOf(other wholeState) bool {
	return s.resource == other.resource && s.namespace == other.namespace && s.name == other.name
}

// open begins anew.
func (g *grouper) open(ctx context.Context, tx pgx.Tx) error {
	g.done, g.behind = time.Time{}, wholeState{}
	return tx.QueryRow(ctx, canGroup).Scan(&g.able)
}

// step groups the next states that ended longer than g.whole ago. messages and bytes are those that the batch has.
func (g *grouper) step(ctx context.Context, tx pgx.Tx, now time.Time, messages, bytes int) error {
	if !g.able || now.Sub(g.done) < min(groupEvery, g.whole) {
		return nil
	}
	limit := stepRows + 2*messages // a scan that is no faster than the writes never ends
	b := g.behind
	rows, err := tx.Query(ctx, selectWhole, b.resource, b.namespace, b.name, b.id, limit)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s wholeState, err error) {
		return s, row.Scan(&s.resource, &s.namespace, &s.name, &s.id, &s.ended, &s.bytes, &s.deleted)
	})
	if err != nil {
		return err
	}
	more := len(found) == limit
	if more {
		found = withoutLast(found)
	}
	groups, looked := g.plan(found, now, stepBytes+2*bytes)
	if err := joinGroups(ctx, tx, groups); err != nil {
		return err
	}
	if !more && looked == len(found) {
		g.done, g.behind = now, wholeState{}
		return nil
	}
	g.behind = found[looked-1]
	return nil
}

// withoutLast returns states without those of the last object, of which there may be more, unless all are of it.
func withoutLast(states []wholeState) []wholeState {
	last := states[len(states)-1]
	n := len(states)
	for n > 0 && states[n-1].isOf(last) {
		n--
	}
	if n == 0 {
		return states
	}
	return states[:n]
}

// plan returns the groups that states make which are in the order of the primary key, and how many of them it has
// looked at: it ends behind most bytes.
func (g *grouper) plan(states []wholeState, now time.Time, most int) (groups [][]wholeState, looked int) {
	var open []*openGroup // of one resource, each of another time
	end := func(group *openGroup) {
		if len(group.states) > 1 && group.bytes >= g.least {
			groups = append(groups, group.states)
		}
	}
	for looked < len(states) && most > 0 {
		first, next := states[looked], looked
		var of []int
		for ; next < len(states) && states[next].isOf(first); next++ {
			if s := states[next]; now.Sub(s.ended) > g.whole && s.bytes <= maxGrouped {
				of = append(of, next)
			}
		}
		looked = next
		if len(of) == 0 || len(of) < g.few && !states[of[len(of)-1]].deleted && now.Sub(states[of[0]].ended) < waitTime {
			continue
		}
		if len(open) > 0 && open[0].states[0].resource != first.resource {
			for _, group := range open {
				end(group)
			}
			open = nil
		}
		for _, i := range of {
			if most <= 0 { // the next batch continues
				looked = i
				break
			}
			s, age := states[i], now.Sub(states[i].ended)
			most -= s.bytes
			at := slices.IndexFunc(open, func(group *openGroup) bool { return group.spans(age) <= groupSpan })
			switch {
			case at < 0:
				at = len(open)
				open = append(open, &openGroup{})
			case len(open[at].states) == maxMembers || open[at].bytes+s.bytes > groupBytes:
				end(open[at])
				open[at] = &openGroup{}
			}
			open[at].add(s, age)
		}
	}
	for _, group := range open {
		end(group)
	}
	return groups, looked
}

// openGroup is a group that others may join.
type openGroup struct {
	states           []wholeState
	bytes            int
	youngest, oldest time.Duration // since the ends of its states
}

// spans returns the time between the ends of its states and of another one.
func (g *openGroup) spans(age time.Duration) time.Duration {
	return max(g.oldest, age) - min(g.youngest, age)
}

func (g *openGroup) add(s wholeState, age time.Duration) {
	if len(g.states) == 0 {
		g.youngest, g.oldest = age, age
	}
	g.youngest, g.oldest = min(g.youngest, age), max(g.oldest, age)
	g.states, g.bytes = append(g.states, s), g.bytes+s.bytes
}

// joinGroups makes groups of states.
func joinGroups(ctx context.Context, tx pgx.Tx, groups [][]wholeState) error {
	ids := make([]int64, len(groups))
	made, joined := &pgx.Batch{}, &pgx.Batch{}
	for i, group := range groups {
		var namespaces, names []string
		var rows []int64
		for _, s := range group {
			namespaces, names, rows = append(namespaces, s.namespace), append(names, s.name), append(rows, s.id)
		}
		made.Queue(insertGroup, group[0].resource, namespaces, names, rows).QueryRow(func(row pgx.Row) error {
			return row.Scan(&ids[i])
		})
	}
	if err := tx.SendBatch(ctx, made).Close(); err != nil {
		return fmt.Errorf("group states: %w", err)
	}
	for i, group := range groups {
		for n, s := range group {
			joined.Queue(joinGroup, s.resource, s.namespace, s.name, s.id, ids[i], n+1).Exec(func(tag pgconn.CommandTag) error {
				if tag.RowsAffected() != 1 {
					return errors.New("group states: another program has changed the tables")
				}
				return nil
			})
		}
	}
	return tx.SendBatch(ctx, joined).Close()
}

// release deletes the groups of states that were deleted, if no other state needs them. If the deletion has left some
// for long, those of which it has left less than half become whole again.
func release(ctx context.Context, tx pgx.Tx, groups []int64, leaves bool) error {
	b := &pgx.Batch{}
	for _, id := range groups {
		if leaves {
			b.Queue(leaveGroup, id)
		}
		b.Queue(deleteGroup, id)
	}
	return tx.SendBatch(ctx, b).Close()
}
