package sinktest

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// again is an object that is added again with another revision or UID than its earlier rows have.
type again struct {
	thing
	uid keepwatch.UID
}

func (o *again) UID() keepwatch.UID { return o.uid }

// TestAsOf checks that a database has one state of each object at every revision. Objects are delivered as deleted at
// the end of a gap, and are added again with a state from before it: the type was not served for a while. The server
// may have been restored meanwhile, so that it has an earlier state than the last one. So many further objects return
// as they were.
func TestAsOf(t *testing.T, s sink.Sink, db *sql.DB, more int) {
	t.Helper()
	event := func(kind keepwatch.ChangeType, name, uid string, object, at keepwatch.Revision) stream.Event {
		o := &again{thing{name, object, `{}`}, keepwatch.UID(uid)}
		return stream.Event{Type: kind, Revision: at, Object: o}
	}
	added := func(name, uid string, at keepwatch.Revision) stream.Event {
		return event(keepwatch.Added, name, uid, at, at)
	}
	modified := func(name, uid string, at keepwatch.Revision) stream.Event {
		return event(keepwatch.Modified, name, uid, at, at)
	}
	deleted := func(name, uid string, at keepwatch.Revision) stream.Event {
		return event(keepwatch.Deleted, name, uid, 1, at)
	}
	each := func(events ...stream.Event) (all []stream.Message) {
		for _, e := range events {
			all = append(all, e)
			for i := range more {
				if o := e.Object.(*again); o.name == "same" {
					all = append(all, event(e.Type, fmt.Sprint(o.name, "-", i), string(o.uid), o.revision, e.Revision))
				}
			}
		}
		return all
	}
	var progress sink.Progress
	count := 0
	write := func(cursor keepwatch.Revision, messages ...stream.Message) {
		t.Helper()
		for _, m := range messages {
			if e, ok := m.(stream.Event); ok {
				count += map[keepwatch.ChangeType]int{keepwatch.Added: 1, keepwatch.Deleted: -1}[e.Type]
			}
		}
		p := stream.Piece{Messages: messages, Cursor: cursor, Count: uint64(count), Position: []byte(`{}`)}
		piece := sink.Piece{Piece: p, Before: progress, After: progress.After(p)}
		progress = piece.After
		Write(t, s, sink.Batch{Time: time.Now().UTC().Truncate(time.Millisecond), Pieces: []sink.Piece{piece}})
	}
	gap := func(from, to keepwatch.Revision, reason keepwatch.GapReason) []stream.Message {
		return []stream.Message{stream.Gap{From: from, To: to, Reason: reason}}
	}
	names := []string{"same", "changed", "replaced", "restored", "redefined"}
	end := func(at keepwatch.Revision, uids ...string) (all []stream.Message) {
		for i, name := range names {
			all = append(all, each(deleted(name, uids[i], at))...)
		}
		return append(all, stream.Synced{Revision: at})
	}

	Open(t, s)
	write(10, each(added("same", "s", 5), added("changed", "c", 5), added("replaced", "p", 6), added("restored", "r", 7),
		added("redefined", "d", 5))...)
	write(10, stream.Synced{Revision: 10, Count: uint64(count)})
	write(20, each(modified("restored", "r", 18), modified("redefined", "d", 5), modified("restored", "r", 20))...)
	write(100, append(gap(20, 100, keepwatch.GapExpired), end(100, "s", "c", "p", "r", "d")...)...)
	write(100, gap(100, 200, keepwatch.GapExpired)...)
	write(100, each(added("same", "s", 5), added("changed", "c", 150), added("replaced", "p2", 50), added("restored", "r",
		15), added("redefined", "d", 5))...)
	write(200, stream.Synced{Revision: 200, Count: uint64(count)})
	checkStates(t, db, 0, 210, map[string]string{
		"same": "s5@5-", "changed": "c5@5-99 c150@150-", "replaced": "p6@6-49 p250@50-", "restored": "r7@7-14 r15@15-",
		"redefined": "d5@5-",
	})

	// The server is restored, and the objects return in one piece with the end. One state of it is older than an earlier
	// one.
	write(200, gap(200, 30, keepwatch.GapRewind)...)
	messages := append(end(40, "s", "c", "p2", "r", "d"), gap(40, 60, keepwatch.GapExpired)...)
	messages = append(messages, each(added("same", "s", 5), added("changed", "c", 58), modified("changed", "c", 55),
		added("replaced", "p3", 20), added("restored", "r", 15), added("redefined", "d", 5))...)
	write(60, append(messages, stream.Synced{Revision: 60, Count: uint64(count)})...)
	checkStates(t, db, 0, 210, map[string]string{
		"same": "s5@5-", "changed": "c5@5-99 c150@150-", "replaced": "p6@6-49 p250@50-", "restored": "r7@7-14 r15@15-",
		"redefined": "d5@5-",
	})
	checkStates(t, db, 1, 70, map[string]string{
		"same": "s5@0-", "changed": "c150@0-39 c55@55-", "replaced": "p250@0-19 p320@20-", "restored": "r15@0-",
		"redefined": "d5@0-",
	})
	s.Close()
}

// checkStates compares the states of all objects at each revision of an epoch with the wanted ones: "UID and revision
// of the state@first-last".
func checkStates(t *testing.T, db *sql.DB, epoch int, newest keepwatch.Revision, want map[string]string) {
	t.Helper()
	type run struct {
		state       string
		first, last keepwatch.Revision
	}
	found := map[string][]run{}
	for at := range newest + 1 {
		rows, err := Tables{db}.AsOf(t.Context(), 0, sink.Cut{Epoch: epoch, Revision: at})
		if err != nil {
			t.Fatal(err)
		}
		states := map[string][]string{}
		for _, r := range rows {
			states[r.Name] = append(states[r.Name], fmt.Sprint(r.UID, r.Revision))
		}
		for name, all := range states {
			state, runs := strings.Join(all, " and "), found[name]
			if n := len(runs); n > 0 && runs[n-1].state == state && runs[n-1].last == at-1 {
				runs[n-1].last = at
			} else {
				found[name] = append(runs, run{state, at, at})
			}
		}
	}
	for name := range want {
		if found[name] == nil {
			t.Errorf("epoch %d has no %s", epoch, name)
		}
	}
	for name, runs := range found {
		var text []string
		for _, r := range runs {
			last := ""
			if r.last < newest {
				last = fmt.Sprint(r.last)
			}
			text = append(text, fmt.Sprintf("%s@%d-%s", r.state, r.first, last))
		}
		kind, _, _ := strings.Cut(name, "-")
		if got := strings.Join(text, " "); got != want[kind] {
			t.Errorf("epoch %d has %s %s, want %s", epoch, name, got, want[kind])
		}
	}
}
