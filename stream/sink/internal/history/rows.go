package history

import (
	"errors"
	"fmt"
	"math"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Point is a revision in an epoch. Points are ordered by epoch, then by revision.
type Point struct {
	Epoch    int
	Revision keepwatch.Revision
}

func (p Point) before(o Point) bool {
	return p.Epoch < o.Epoch || p.Epoch == o.Epoch && p.Revision < o.Revision
}

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

// Ending ends the current row of a key.
type Ending struct {
	Key keepwatch.Key
	End
}

// Gap is a declared gap.
type Gap struct {
	Epoch    int
	From, To keepwatch.Revision
	Reason   keepwatch.GapReason
}

// Changes are the rows that a piece inserts and ends. All endings concern rows that were
// current before the piece, at most one for each key.
type Changes struct {
	Endings []Ending
	Rows    []Row
	Gaps    []Gap
}

// Of returns the changes of a piece. It returns an error for a state without a body, and for
// an event that does not fit the ones before it.
func Of(piece sink.Piece) (Changes, error) {
	f := folder{last: map[keepwatch.Key]int{}, ended: map[keepwatch.Key]int{}}
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
	last  map[keepwatch.Key]int // key → its last row in Rows
	ended map[keepwatch.Key]int // key → its element of Endings
}

func (f *folder) event(e stream.Event, epoch int) error {
	key := e.Object.Key()
	if max(e.Revision, e.Object.Revision()) > math.MaxInt64 {
		return fmt.Errorf("a database cannot store the revision %d", max(e.Revision, e.Object.Revision()))
	}
	if e.Type == keepwatch.Deleted {
		return f.end(key, End{Point{epoch, e.Revision}, true})
	}
	row := Row{Key: key, UID: e.Object.UID(), JSON: e.Object.JSON(), Sum: e.Rendition.Sum, From: Point{epoch, e.Object.Revision()}}
	if len(row.JSON) == 0 {
		return errors.New("the object has no body")
	}
	if e.Type == keepwatch.Modified {
		if err := f.end(key, End{row.From, false}); err != nil {
			return err
		}
	}
	return f.add(row)
}

// end ends the current row of a key.
func (f *folder) end(key keepwatch.Key, end End) error {
	i, ok := f.last[key]
	switch _, ended := f.ended[key]; {
	case ok && f.Rows[i].End == nil:
		f.Rows[i].setEnd(end)
	case ok || ended:
		return errors.New("the object was deleted before")
	default:
		f.ended[key] = len(f.Endings)
		f.Endings = append(f.Endings, Ending{key, end})
	}
	return nil
}

// add adds a row. It moves the end of the key's last row back to the beginning of the new one:
// a deletion in a gap is at the gap's end, although a new object may have the name since an
// earlier revision.
func (f *folder) add(row Row) error {
	if i, ok := f.last[row.Key]; ok {
		switch last := &f.Rows[i]; {
		case last.End == nil:
			return errors.New("the object was added before")
		case row.From.before(last.End.Point):
			last.setEnd(End{row.From, last.End.Deleted})
		}
	} else if i, ok := f.ended[row.Key]; ok && row.From.before(f.Endings[i].Point) {
		f.Endings[i].Point = row.From
	}
	f.last[row.Key] = len(f.Rows)
	f.Rows = append(f.Rows, row)
	return nil
}

// setEnd sets the end of a row, which is not before its beginning.
func (r *Row) setEnd(end End) {
	if end.before(r.From) {
		end.Point = r.From
	}
	r.End = &end
}
