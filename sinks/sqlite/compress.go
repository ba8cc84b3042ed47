package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/sinks/internal/history"
)

const (
	// wholeTime is how long a state stays whole after its end: most questions are about what has happened just now.
	wholeTime = time.Hour
	// compressBytes bounds the states that one batch compresses, beside twice as many as it has added itself.
	compressBytes = 1 << 20
	// A state below minCompressed bytes stays whole: its row has more than that in other columns.
	minCompressed = 256
	// goodDelta and usefulDelta are the parts of a state that a delta takes at most so that no other base is tried, and
	// that no new one is made.
	goodDelta   = 24
	usefulDelta = 6
	// maxGroups and groupBases bound the bases that are remembered for new objects, baseMemory those that are in memory.
	maxGroups  = 4096
	groupBases = 4
	baseMemory = 16 << 20
)

const (
	selectWhole = `SELECT id, resource, namespace, name, seen_to, base IS NULL, object FROM states
		WHERE seen_to IS NOT NULL AND (seen_to, id) > (?, ?) AND seen_to < ? ORDER BY seen_to, id`
	selectBase = `SELECT coalesce(base, 0) FROM states WHERE resource = ? AND namespace = ? AND name = ? AND id < ?
		ORDER BY id DESC LIMIT 1`
	releaseBase = `DELETE FROM bases WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM states WHERE base = ?1)`
)

// compressor writes states that have ended as what differs from a base, a state of the same object or of one with a
// similar name. Bases are rows of their own, so that a state can be deleted without another; one is deleted with the
// last state that needs it.
type compressor struct {
	done   time.Time // when nothing was left to compress
	groups map[string][]int64
	bases  map[int64]*history.Base
	memory int // bytes of bases
	// retired are bases of which a state was deleted: no more states are made of them, or their text would stay as long as
	// there are objects like it, whatever the retention is.
	retired map[int64]bool
}

func newCompressor() *compressor {
	return &compressor{groups: map[string][]int64{}, bases: map[int64]*history.Base{},
		retired: map[int64]bool{}}
}

// forget forgets which bases there are.
func (c *compressor) forget() {
	if c != nil {
		*c = *newCompressor()
	}
}

// wholeState is a state that is not compressed.
type wholeState struct {
	id                               int64
	resource, namespace, name, ended string
	object                           string
}

// compress compresses the next states that ended longer than s.whole ago. bytes are those of the states that the batch
// has added.
func (s *Sink) compress(ctx context.Context, now time.Time, bytes int) error {
	c := s.compressor
	if now.Sub(c.done) < min(sweepEvery, s.whole) {
		return nil
	}
	var ended string
	var id int64
	if err := s.conn.QueryRowContext(ctx, `SELECT compressed, compressed_id FROM keepwatch`).Scan(&ended,
		&id); err != nil {
		return err
	}
	next, last, more, err := s.nextWhole(ctx, ended, id, textOf(now.Add(-s.whole)), compressBytes+2*bytes)
	if err != nil {
		return err
	}
	if !more {
		c.done = now
	}
	if last.id == 0 {
		return nil
	}
	for _, state := range next {
		if err := c.compress(ctx, s.conn, state); err != nil {
			return err
		}
	}
	_, err = s.conn.ExecContext(ctx, `UPDATE keepwatch SET compressed = ?, compressed_id = ?`, last.ended, last.id)
	return err
}

// nextWhole returns the states that ended after another one and before a time and are whole, of about so many bytes,
// the last one that it has seen, and whether there may be more.
func (s *Sink) nextWhole(ctx context.Context, ended string, id int64, before string, most int) (all []wholeState,
	last wholeState, more bool, err error) {
	rows, err := s.conn.QueryContext(ctx, selectWhole, ended, id, before)
	if err != nil {
		return nil, last, false, err
	}
	defer rows.Close()
	for size := 0; rows.Next(); {
		if size >= most {
			return all, last, true, nil
		}
		var whole bool
		if err := rows.Scan(&last.id, &last.resource, &last.namespace, &last.name, &last.ended, &whole,
			&last.object); err != nil {
			return nil, last, false, err
		}
		size += len(last.object) + minCompressed
		if whole && len(last.object) >= s.least {
			all = append(all, last)
		}
	}
	return all, last, false, rows.Err()
}

// compress compresses a state.
func (c *compressor) compress(ctx context.Context, conn *sql.Conn, state wholeState) error {
	base, delta, err := c.delta(ctx, conn, state)
	if err != nil || base == 0 {
		return err
	}
	_, err = conn.ExecContext(ctx, `UPDATE states SET object = ?, base = ? WHERE id = ?`, delta, base, state.id)
	return err
}

// delta returns a state as what differs from a base, which it makes if no other is similar. The base is 0 if the state
// stays whole.
func (c *compressor) delta(ctx context.Context, conn *sql.Conn,
	state wholeState) (base int64, delta string, err error) {
	var own int64
	err = conn.QueryRowContext(ctx, selectBase, state.resource, state.namespace, state.name, state.id).Scan(&own)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, "", err
	}
	group := groupOf(state)
	for i, id := range append([]int64{own}, c.groups[group]...) {
		if id == 0 || i > 0 && id == own || c.retired[id] {
			continue
		}
		of, err := c.base(ctx, conn, id)
		if err != nil {
			return 0, "", err
		}
		if of == nil {
			continue
		}
		if text, ok := of.Delta(state.object); ok && (base == 0 || len(text) < len(delta)) {
			base, delta = id, text
		}
		if base != 0 && len(delta)*goodDelta <= len(state.object) {
			break
		}
	}
	if base != 0 && len(delta)*usefulDelta <= len(state.object) {
		return base, delta, nil
	}
	return c.newBase(ctx, conn, group, state.object)
}

// newBase stores a base, and returns it with the delta of its own text.
func (c *compressor) newBase(ctx context.Context, conn *sql.Conn, group, text string) (id int64, delta string,
	err error) {
	of := history.NewBase(text)
	if of == nil {
		return 0, "", nil
	}
	delta, ok := of.Delta(text)
	if !ok {
		return 0, "", nil
	}
	err = conn.QueryRowContext(ctx, `INSERT INTO bases (object) VALUES (?) RETURNING id`, text).Scan(&id)
	if err != nil {
		return 0, "", err
	}
	c.remember(id, of)
	if len(c.groups) >= maxGroups {
		clear(c.groups)
	}
	known := append([]int64{id}, c.groups[group]...)
	c.groups[group] = known[:min(len(known), groupBases)]
	return id, delta, nil
}

// groupOf returns a text that objects of one owner share: the name without what a controller has appended.
func groupOf(state wholeState) string {
	stem := state.name
	if i := strings.LastIndexAny(stem, "-."); i > 0 {
		stem = stem[:i]
	}
	return state.resource + "/" + state.namespace + "/" + stem
}

// base returns a base, nil if there is none any more.
func (c *compressor) base(ctx context.Context, conn *sql.Conn, id int64) (*history.Base, error) {
	if of, ok := c.bases[id]; ok {
		return of, nil
	}
	var text string
	err := conn.QueryRowContext(ctx, `SELECT object FROM bases WHERE id = ?`, id).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	of := history.NewBase(text)
	c.remember(id, of)
	return of, nil
}

func (c *compressor) remember(id int64, of *history.Base) {
	if of == nil {
		return
	}
	if c.memory > baseMemory {
		clear(c.bases)
		c.memory = 0
	}
	c.bases[id] = of
	c.memory += of.Size()
}

// release deletes the bases of states that were deleted. Those that other states have are retired.
func (c *compressor) release(ctx context.Context, conn *sql.Conn, bases map[int64]bool) error {
	for id := range bases {
		result, err := conn.ExecContext(ctx, releaseBase, id)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return err
		}
		if n == 0 {
			c.retired[id] = true
			continue
		}
		delete(c.retired, id)
		if of := c.bases[id]; of != nil {
			delete(c.bases, id)
			c.memory -= of.Size()
		}
	}
	return nil
}
