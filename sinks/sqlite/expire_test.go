package sqlite_test

import (
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// large is an object of some kilobytes.
type large struct {
	thing
	size int
}

func (o *large) JSON() []byte {
	return fmt.Appendf(nil, `{"revision":%d,"text":%q}`, o.revision, strings.Repeat("x", o.size))
}

// size returns the bytes of the pages of a file that are in use, and of the file.
func size(t *testing.T, db *sql.DB) (used, file int64) {
	t.Helper()
	var pages, free, page int64
	for pragma, to := range map[string]*int64{"page_count": &pages, "freelist_count": &free, "page_size": &page} {
		if err := db.QueryRow("PRAGMA " + pragma).Scan(to); err != nil {
			t.Fatal(err)
		}
	}
	return (pages - free) * page, pages * page
}

// TestMaxSize changes random objects. The file stays below its size, the states that ended first are deleted, and each
// state that the history claims to have is there.
func TestMaxSize(t *testing.T) {
	const (
		maxSize = 1 << 19
		steps   = 70
	)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-sinks.seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "state.db")
	var reported sink.Expiry
	s := sqlite.New(path, sqlite.Options{MaxSize: maxSize, Expired: func(e sink.Expiry) {
		if e.Reason != sink.ExpiredBySize || e.Excess != 0 || e.States == 0 || e.Until.Before(reported.Until) {
			t.Errorf("%+v after %+v", e, reported)
		}
		e.States += reported.States
		reported = e
	}})
	open(t, s)
	other := read(t, path)
	began := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	states, all := map[string]keepwatch.Revision{}, map[keepwatch.Revision]map[string]keepwatch.Revision{}
	revision, written := keepwatch.Revision(1), 0
	for step := range steps {
		var messages []stream.Message
		for range 1 + random.IntN(12) {
			revision++
			name := fmt.Sprintf("o%d", random.IntN(20))
			kind := keepwatch.Modified
			switch _, exists := states[name]; {
			case !exists:
				kind = keepwatch.Added
			case random.IntN(4) == 0:
				kind = keepwatch.Deleted
			}
			messages = append(messages, stream.Event{Type: kind, Revision: revision, Object: &large{thing{name, revision}, 1 + random.IntN(9000)}})
			if states[name] = revision; kind == keepwatch.Deleted {
				delete(states, name)
			} else {
				written++
			}
			all[revision] = maps.Clone(states)
		}
		if step == 0 {
			messages = append(messages, stream.Synced{Revision: revision, Count: uint64(len(states))})
		}
		p := stream.Piece{Messages: messages, Cursor: revision, Count: uint64(len(states)), Position: []byte(`{}`)}
		piece := sink.Piece{Piece: p, Before: sink.Progress{Cursor: 1, Since: 1}, After: sink.Progress{Cursor: revision, Since: 2}}
		if err := s.Write(t.Context(), sink.Batch{Time: began.Add(time.Duration(step) * time.Second), Pieces: []sink.Piece{piece}}); err != nil {
			t.Fatal(err)
		}
		if used, file := size(t, other); used > maxSize || file > maxSize+12*4*9000 {
			t.Fatalf("step %d: %d bytes are in use, and the file has %d", step, used, file)
		}
	}
	snapshot(t, path, func(tables sink.Snapshot) error {
		status, err := tables.Status(t.Context())
		if err != nil {
			return err
		}
		first := status[2].First
		if first.Revision < 100 || revision-first.Revision < 5 || !status[2].FirstSeen.Equal(reported.Until) {
			t.Errorf("the history of %d revisions begins at %+v, %v; %+v was deleted", revision, first, status[2].FirstSeen, reported)
		}
		for at := first.Revision; at <= revision; at++ {
			found := map[string]keepwatch.Revision{}
			err := tables.States(t.Context(), sink.StateQuery{Resource: "pods", At: &sink.Point{Revision: at}}, func(s sink.State) error {
				found[s.Key.Name] = s.From.Revision
				return nil
			})
			if err != nil || !maps.Equal(found, all[at]) {
				t.Errorf("at %d: %v, %v, want %v", at, found, err, all[at])
			}
		}
		stored := 0
		if err := tables.States(t.Context(), sink.StateQuery{Resource: "pods"}, func(s sink.State) error {
			if stored++; s.To != nil && s.SeenTo.Before(reported.Until) {
				t.Errorf("%+v is stored, and what ended by %v was deleted", s, reported.Until)
			}
			return nil
		}); err != nil {
			return err
		}
		if stored+reported.States != written {
			t.Errorf("%d states are stored and %d were deleted, of %d", stored, reported.States, written)
		}
		return nil
	})
}

// TestMaxSizeTooSmall checks that current states are never deleted, and that the excess is reported, and its end.
func TestMaxSizeTooSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var reported []sink.Expiry
	expired := func(e sink.Expiry) { reported = append(reported, e) }
	s := sqlite.New(path, sqlite.Options{MaxSize: 200_000, Expired: expired})
	open(t, s)
	begin := time.Now()
	write := func(minute int, cursor keepwatch.Revision, messages ...stream.Message) {
		t.Helper()
		if err := write(t, s, 1, cursor, begin.Add(time.Duration(minute)*time.Minute), messages...); err != nil {
			t.Fatal(err)
		}
	}
	event := func(kind keepwatch.ChangeType, name string, at keepwatch.Revision, size int) stream.Message {
		return stream.Event{Type: kind, Revision: at, Object: &large{thing{name, at}, size}}
	}
	write(0, 2, event(keepwatch.Added, "a", 1, 10), event(keepwatch.Added, "b", 2, 300_000), stream.Synced{Revision: 2, Count: 2})
	write(1, 3, event(keepwatch.Modified, "a", 3, 20))
	if len(reported) != 2 || reported[0].States != 0 || reported[0].Excess < 100_000 || reported[1].States != 1 || reported[1].Excess < 100_000 {
		t.Fatalf("%+v", reported)
	}
	write(2, 3)
	if len(reported) != 2 {
		t.Errorf("an equal excess is reported again: %+v", reported[2:])
	}
	write(3, 4, event(keepwatch.Deleted, "b", 4, 300_000))
	if len(reported) != 3 || reported[2].States != 1 || reported[2].Excess != 0 {
		t.Errorf("%+v", reported)
	}
	var rows string
	if err := read(t, path).QueryRow(`SELECT group_concat(name || valid_from, ' ') FROM resources`).Scan(&rows); err != nil || rows != "a3" {
		t.Errorf("the rows are %q, %v", rows, err)
	}
}
