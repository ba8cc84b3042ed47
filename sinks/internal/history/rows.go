package history

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Point is a revision in an epoch.
type Point = sink.Point

// End is the end of a row: the revision that replaced its state or deleted its object.
type End struct {
	Point
	Deleted bool
}

// Row is a state of an object that a piece adds.
type Row struct {
	Key  keepwatch.Key
	UID  keepwatch.UID
	JSON []byte
	// Sum is the hash of the content, 0 if it is not known; see stream.Rendition.
	Sum  uint64
	From Point // its revision is the object's
	End  *End  // set if the same piece also ends it
}

// Ending ends the current row of a key at a point. It moves the ends of earlier rows back that are after the point: an
// object that was deleted in a gap may return in a state from before the gap's end. No end is before the beginning of
// its row.
type Ending struct {
	Key keepwatch.Key
	End
	// UID is that of the key's object at the point. Its earlier rows whose ends move back did not end by a deletion.
	UID keepwatch.UID
	// Added is true if the piece adds the object: the key has no current row.
	Added bool
}

// Gap is a declared gap.
type Gap struct {
	Epoch    int
	From, To keepwatch.Revision
	Reason   keepwatch.GapReason
}

// Changes are the rows that a piece inserts and ends. All endings concern rows from before the piece. There is one for
// each key, and it comes before the rows.
type Changes struct {
	Endings []Ending
	Rows    []Row
	Gaps    []Gap
}

// End reports whether a row ends.
func (c Changes) End() bool {
	return len(c.Endings) > 0 || slices.ContainsFunc(c.Rows, func(r Row) bool { return r.End != nil })
}

// Of returns the changes of a piece. It returns an error for a state without a body, and for
// an event that does not fit the ones before it. empty is true if the tables have no row of the resource that has
// ended, as in a first list.
func Of(piece sink.Piece, empty bool) (Changes, error) {
	f := folder{before: piece.Before, empty: empty, rows: map[keepwatch.Key][]int{}, ended: map[keepwatch.Key]int{}}
	progress := piece.Before
	for _, m := range piece.Messages {
		progress = progress.Message(m)
		switch m := m.(type) {
		case stream.Gap:
			f.Gaps = append(f.Gaps, Gap{Epoch: progress.Epoch, From: m.From, To: m.To, Reason: m.Reason})
		case stream.Event:
			if err := f.event(m, progress.Epoch); err != nil {
				return Changes{}, fmt.Errorf("%s %s: %w", m.Type, m.Object.Key(), err)
			}
		}
	}
	return f.Changes, nil
}

// folder folds the events of one piece.
type folder struct {
	Changes
	before sink.Progress
	empty  bool
	rows   map[keepwatch.Key][]int // key → its elements of Rows
	ended  map[keepwatch.Key]int   // key → its element of Endings
}

func (f *folder) event(e stream.Event, epoch int) error {
	key, uid := e.Object.Key(), e.Object.UID()
	if max(e.Revision, e.Object.Revision()) > math.MaxInt64 {
		return fmt.Errorf("a database cannot store the revision %d", max(e.Revision, e.Object.Revision()))
	}
	if e.Type == keepwatch.Deleted {
		return f.end(key, uid, End{Point{Epoch: epoch, Revision: e.Revision}, true})
	}
	row := Row{Key: key, UID: uid, JSON: e.Object.JSON(), Sum: e.Rendition.Sum, From: Point{Epoch: epoch,
		Revision: e.Object.Revision()}}
	if len(row.JSON) == 0 {
		return errors.New("the object has no body")
	}
	if e.Type == keepwatch.Modified {
		if err := f.end(key, uid, End{row.From, false}); err != nil {
			return err
		}
	}
	return f.add(row)
}

// end ends the current row of a key.
func (f *folder) end(key keepwatch.Key, uid keepwatch.UID, end End) error {
	row := f.last(key)
	switch _, ended := f.ended[key]; {
	case row != nil && row.End == nil:
		row.setEnd(end)
	case row != nil || ended:
		return errors.New("the object was deleted before")
	default:
		f.ended[key] = len(f.Endings)
		f.Endings = append(f.Endings, Ending{Key: key, End: end, UID: uid})
	}
	return nil
}

// last returns the last row of a key in the piece, or nil.
func (f *folder) last(key keepwatch.Key) *Row {
	if rows := f.rows[key]; len(rows) > 0 {
		return &f.Rows[rows[len(rows)-1]]
	}
	return nil
}

// add adds a row. It moves later ends of the key's earlier rows back to the beginning of the new one: a deletion in a
// gap is at the gap's end, although an object has the name since an earlier revision.
func (f *folder) add(row Row) error {
	if last := f.last(row.Key); last != nil && last.End == nil {
		return errors.New("the object was added before")
	}
	if i, ok := f.ended[row.Key]; ok {
		e := &f.Endings[i]
		e.End, e.UID = e.until(row, e.UID), row.UID
	} else if !f.isLast(row.From) {
		f.ended[row.Key] = len(f.Endings)
		f.Endings = append(f.Endings, Ending{Key: row.Key, End: End{Point: row.From}, UID: row.UID, Added: true})
	}
	for _, i := range f.rows[row.Key] {
		earlier := &f.Rows[i]
		earlier.setEnd(earlier.End.until(row, earlier.UID))
	}
	f.rows[row.Key] = append(f.rows[row.Key], len(f.Rows))
	f.Rows = append(f.Rows, row)
	return nil
}

// isLast reports whether no row from before the piece has ended after a point: such ends are up to the cursor, unless a
// list has begun.
func (f *folder) isLast(p Point) bool {
	live := f.before.Started() && f.before.Gap == "" && f.before.Epoch == p.Epoch
	return f.empty || live && p.Revision > f.before.Cursor
}

// until returns the end of a state of the object uid, at the latest the beginning of a later row of the key. If it
// moves to a row of the same object, that was not deleted.
func (e End) until(next Row, uid keepwatch.UID) End {
	if next.From.Before(e.Point) {
		return End{next.From, e.Deleted && uid != next.UID}
	}
	return e
}

// setEnd sets the end of a row, which is not before its beginning.
func (r *Row) setEnd(end End) {
	if end.Before(r.From) {
		end.Point = r.From
	}
	r.End = &end
}
