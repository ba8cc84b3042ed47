package stream

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// tail is a piece on its way to the consumer: what is to be told, and the index
// as it is behind it.
type tail struct {
	state    State
	kind     schema.GroupVersionKind // see Options
	messages []Message
	intents  []intent
	tells    bool // there are events among the messages
	records  map[string]*record
	position position
	moved    bool // position is not what was committed

	open    []announcement // that remain
	settled []uint64

	owed    bool               // a SYNCED, as of behind the piece
	reached bool               // there is a SYNCED among the messages
	held    keepwatch.Revision // the cursor before the piece
	last    keepwatch.Revision // of the changes applied so far
}

func (s *Stream) begin() *tail {
	return &tail{
		state: s.state, kind: s.options.Kind, records: map[string]*record{}, position: s.position, open: s.open,
		owed: s.owed, held: s.position.Cursor, last: s.position.Cursor,
	}
}

func (t *tail) empty() bool { return len(t.messages) == 0 && len(t.records) == 0 && !t.moved }

// get finds the record of a key as it is behind the piece so far.
func (t *tail) get(key string) (record, bool, error) {
	if r, ok := t.records[key]; ok {
		if r == nil {
			return record{}, false, nil
		}
		return *r, true, nil
	}
	return t.state.get(key)
}

func newEvent(kind keepwatch.ChangeType, at keepwatch.Revision, o Object) Event {
	change := keepwatch.Change{Type: kind, Revision: at, Object: o}
	return Event{Type: kind, Revision: at, ID: change.ID(), Object: o}
}

func (t *tail) say(e Event) {
	t.messages = append(t.messages, e)
	t.tells = true
	t.position.Told = max(t.position.Told, e.Revision)
}

// add tells of an object that the consumer does not know, and returns the serial
// of its key.
func (t *tail) add(key string, o Object) uint64 {
	t.position.Serial++
	t.position.Count++
	r := recordOf(o, t.position.Serial, t.kind)
	e := newEvent(keepwatch.Added, o.Revision(), o)
	t.intents = append(t.intents, intent{e.Type, e.Revision, key, r})
	t.records[key] = &r
	t.say(e)
	return r.serial
}

// change tells of a new state of an object, as kind: Modified, or Added if the
// consumer may not know the object.
func (t *tail) change(key string, held record, o Object, kind keepwatch.ChangeType) {
	r := recordOf(o, held.serial, t.kind)
	t.records[key] = &r
	t.say(newEvent(kind, o.Revision(), o))
}

// remove tells that an object is gone; last is what it was.
func (t *tail) remove(key string, at keepwatch.Revision, last Object) {
	e := newEvent(keepwatch.Deleted, at, last)
	t.intents = append(t.intents, intent{e.Type, e.Revision, key, recordOf(last, 0, t.kind)})
	t.forget(key)
	t.say(e)
}

func (t *tail) forget(key string) {
	t.position.Count--
	t.records[key] = nil
}

// advance moves the cursor to a revision that the history has reached.
func (t *tail) advance(to keepwatch.Revision) {
	if to <= t.position.Cursor {
		return
	}
	t.position.Cursor = to
	t.position.Told = max(t.position.Told, to)
	t.moved = true
	// The history up to here has told what was announced up to here.
	t.settle(func(a announcement) bool { return a.revision <= to })
}

// settle drops the open announcements that are of no use any more.
func (t *tail) settle(done func(announcement) bool) {
	open := t.open
	t.open = nil
	for _, a := range open {
		if done(a) {
			t.settled = append(t.settled, a.number)
		} else {
			t.open = append(t.open, a)
		}
	}
}

func (t *tail) synced() {
	t.owed, t.reached = false, true
	t.messages = append(t.messages, Synced{t.position.Cursor, t.position.Count})
}

// retell tells again what a crash has left open and what can't be told from
// history any more: what was deleted, as it was announced; and what was added is
// put into the index in doubt, for the list to be compared with.
func (t *tail) retell() error {
	for _, a := range t.open {
		held, known, err := t.get(a.key)
		if err != nil {
			return err
		}
		same := known && held.uid == a.record.uid
		switch {
		case a.kind == keepwatch.Deleted:
			t.say(a.event())
			if same {
				t.forget(a.key)
			}
		case !same:
			if known {
				t.remove(a.key, a.revision, lastKnown{a.key, held})
			}
			t.suspect(a.key, a.record)
		}
	}
	t.settle(func(announcement) bool { return true })
	return nil
}

// suspect puts an object into the index that the consumer may know.
func (t *tail) suspect(key string, r record) {
	t.position.Serial++
	t.position.Count++
	r.serial, r.doubt = t.position.Serial, keepwatch.Added
	t.records[key] = &r
}
