package sinktest

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestOneTransaction checks that a batch is stored as a whole: when the database refuses one change of it, whichever,
// all others are undone, and the sink stores the batch after another Open. refuse makes the database refuse a change of
// a table, INSERT or UPDATE, until allow is called. The batch adds so many objects.
func TestOneTransaction(t *testing.T, s sink.Sink, db *sql.DB, added int,
	refuse func(change, table string) (allow func())) {
	t.Helper()
	stored := func() (rows, ended, gaps, cursors int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(),
			`SELECT (SELECT count(*) FROM resources), (SELECT count(*) FROM resources WHERE valid_to IS NOT NULL),
			(SELECT count(*) FROM gaps), (SELECT sum(cursor) FROM cursors)`).Scan(&rows, &ended, &gaps, &cursors); err != nil {
			t.Fatal(err)
		}
		return rows, ended, gaps, cursors
	}
	Open(t, s)
	Write(t, s, Batch(2, 5, Event(keepwatch.Added, "changed", 4, `{}`), Event(keepwatch.Added, "deleted", 5, `{}`)))
	messages := []stream.Message{
		stream.Gap{From: 5, To: 9, Reason: keepwatch.GapExpired}, Event(keepwatch.Modified, "changed", 8, `{}`),
		Event(keepwatch.Deleted, "deleted", 9, `{}`),
	}
	for i := range added {
		messages = append(messages, Event(keepwatch.Added, fmt.Sprint("added-", i), 9, `{}`))
	}
	batch := Batch(uint64(1+added), 9, messages...)
	other := Batch(1, 9, Event(keepwatch.Added, "other", 9, `{}`)).Pieces[0]
	other.Stream = 1
	batch.Pieces = append(batch.Pieces, other)
	for _, refused := range [][2]string{{"INSERT", "resources"}, {"UPDATE", "resources"}, {"INSERT", "gaps"},
		{"UPDATE", "cursors"}} {
		rows, ended, gaps, cursors := stored()
		allow := refuse(refused[0], refused[1])
		if err := s.Write(t.Context(), batch); err == nil {
			t.Errorf("%s: a change is refused, and the batch is stored", refused)
		}
		s.Close()
		allow()
		if nowRows, nowEnded, nowGaps, nowCursors := stored(); nowRows != rows || nowEnded != ended || nowGaps != gaps ||
			nowCursors != cursors {
			t.Errorf("%s is refused: %d rows, %d ended, %d gaps, cursors %d; before %d, %d, %d, %d", refused, nowRows, nowEnded,
				nowGaps, nowCursors, rows, ended, gaps, cursors)
		}
		Open(t, s)
	}
	Write(t, s, batch)
	if rows, ended, gaps, cursors := stored(); rows != 4+added || ended != 2 || gaps != 1 || cursors != 18 {
		t.Errorf("in the end: %d rows, %d ended, %d gaps, cursors %d", rows, ended, gaps, cursors)
	}
}
