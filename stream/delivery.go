package stream

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// delivery is one batch of messages to the consumer, with the changes of the state that
// go with it. It is announced, written and committed as a whole; see the package comment.
type delivery struct {
	state     State
	kind      schema.GroupVersionKind // see Options
	project   func([]byte) ([]byte, error)
	messages  []Message
	hasEvents bool // messages has an Event
	hasSynced bool // messages has a Synced
	intents   []intent

	// The state after the delivery.
	records   map[string]*record // that differ; nil: the key is removed
	position  position
	moved     bool           // position differs from the committed one
	announced []announcement // see Stream; those that remain
	settled   []uint64       // numbers of the others
	syncedDue bool           // see Stream

	start keepwatch.Revision // the cursor before the delivery
	last  keepwatch.Revision // of the changes that were applied so far
}

func (s *Stream) newDelivery() *delivery {
	d := &delivery{
		state: s.state, kind: s.options.Kind, project: s.options.Project, records: map[string]*record{},
		position: s.position, announced: s.announced, syncedDue: s.syncedDue, start: s.position.Cursor,
		last: s.position.Cursor,
	}
	if s.options.Source != nil {
		if now := s.options.Source.Definition(); now != "" && now != d.position.Definition {
			d.position.Definition, d.moved = now, true
		}
	}
	return d
}

func (d *delivery) empty() bool { return len(d.messages) == 0 && len(d.records) == 0 && !d.moved }

// get returns the record of a key after the delivery so far.
func (d *delivery) get(key string) (record, bool, error) {
	if r, ok := d.records[key]; ok {
		if r == nil {
			return record{}, false, nil
		}
		return *r, true, nil
	}
	return d.state.get(key)
}

func newEvent(kind keepwatch.ChangeType, at keepwatch.Revision, o Object) Event {
	change := keepwatch.Change{Type: kind, Revision: at, Object: o}
	return Event{Type: kind, Revision: at, ID: change.ID(), Object: o}
}

func (d *delivery) appendEvent(e Event) {
	e.ID = d.position.eventID(e) + e.Rendition.suffix()
	d.messages = append(d.messages, e)
	d.hasEvents = true
	d.position.Delivered = max(d.position.Delivered, e.Revision)
}

// add delivers an object that the consumer does not have as Added, and returns the
// serial of its key.
func (d *delivery) add(key string, o Object) uint64 {
	d.position.Serial++
	d.position.Count++
	d.position.add(o.Revision())
	r := recordOf(o, d.position.Serial, d.kind)
	e := newEvent(keepwatch.Added, o.Revision(), o)
	e.Rendition = r.rendition
	d.intents = append(d.intents, intent{kind: e.Type, revision: e.Revision, key: key, record: r})
	d.records[key] = &r
	d.appendEvent(e)
	return r.serial
}

// modify delivers a new state of an object, or another content of the same state, as an event of the type kind:
// Modified, or Added if the consumer may not have the object.
func (d *delivery) modify(key string, prior record, o Object, kind keepwatch.ChangeType) {
	r := recordOf(o, prior.serial, d.kind)
	if r.revision == prior.revision {
		r.rendition = prior.rendition.next(r.rendition.Sum)
	}
	d.records[key] = &r
	e := newEvent(kind, o.Revision(), o)
	e.Rendition = r.rendition
	d.appendEvent(e)
}

// compareContent compares an object with the one that the consumer has at the same revision. It records the sum of one
// that had none: an earlier version has recorded it, or a stream of metadata.
func (d *delivery) compareContent(key string, prior record, o Object) {
	switch sum := sumOf(o); {
	case prior.rendition.changed(sum):
		d.modify(key, prior, o, keepwatch.Modified)
	case sum != prior.rendition.Sum && sum != 0:
		prior.rendition.Sum = sum
		d.records[key] = &prior
	}
}

// remove delivers an object as Deleted; last is its last known state.
func (d *delivery) remove(key string, at keepwatch.Revision, last Object) {
	e := newEvent(keepwatch.Deleted, at, last)
	d.intents = append(d.intents, intent{kind: e.Type, revision: e.Revision, key: key, record: recordOf(last, 0, d.kind)})
	d.dropRecord(key)
	d.appendEvent(e)
}

func (d *delivery) dropRecord(key string) {
	d.position.Count--
	d.records[key] = nil
}

// advance moves the cursor forward, to the end of a batch.
func (d *delivery) advance(to keepwatch.Revision) {
	if to <= d.position.Cursor {
		return
	}
	d.position.Cursor = to
	d.position.Delivered = max(d.position.Delivered, to)
	d.moved = true
	// The history up to here has delivered all announced events up to here.
	d.settle(func(a announcement) bool { return a.revision <= to })
}

// settle removes the announcements that are done: their events are delivered.
func (d *delivery) settle(done func(announcement) bool) {
	announced := d.announced
	d.announced = nil
	for _, a := range announced {
		if done(a) {
			d.settled = append(d.settled, a.number)
		} else {
			d.announced = append(d.announced, a)
		}
	}
}

// projectLastKnown replaces the bodies that the state had: an earlier run may have stored them without the projection.
func (d *delivery) projectLastKnown() (err error) {
	for i, m := range d.messages {
		if e, ok := m.(Event); ok {
			if e.Object, err = projectionOf(e.Object, d.project); err != nil {
				return err
			}
			d.messages[i] = e
		}
	}
	return nil
}

// projectMetadata replaces the metadata that the state stores; see [Options].Metadata.
func (d *delivery) projectMetadata(project func([]byte) ([]byte, error)) error {
	if project == nil {
		return nil
	}
	for i := range d.intents {
		if err := d.intents[i].record.projectMetadata(project); err != nil {
			return fmt.Errorf("%s: %w", d.intents[i].key, err)
		}
	}
	for key, r := range d.records {
		if r == nil {
			continue
		}
		if err := r.projectMetadata(project); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func (d *delivery) appendSynced() {
	d.syncedDue, d.hasSynced = false, true
	d.messages = append(d.messages, Synced{d.position.Cursor, d.position.Count})
}

// redeliver delivers the announced events that a crash may have cut off and that the
// history no longer has. A deletion is delivered as it was announced. An added object is
// put into the index with doubt; the list that follows shows whether it still exists.
func (d *delivery) redeliver() error {
	removed := keepwatch.Revision(0)
	for _, a := range d.announced {
		prior, known, err := d.get(a.key)
		if err != nil {
			return err
		}
		same := known && prior.uid == a.record.uid
		switch {
		case a.kind == keepwatch.Deleted:
			d.appendEvent(a.event())
			if a.difference {
				removed = max(removed, a.revision)
			}
			if same {
				d.dropRecord(a.key)
			}
		case !same:
			if known {
				d.remove(a.key, a.revision, lastKnown{a.key, prior})
			}
			d.addDoubted(a.key, a.record)
		}
	}
	if removed > 0 {
		d.position.remove(removed) // after the ids, which are those of the announcements
	}
	d.settle(func(announcement) bool { return true })
	return nil
}

// addDoubted adds a record of an object that the consumer may have received.
func (d *delivery) addDoubted(key string, r record) {
	d.position.Serial++
	d.position.Count++
	d.position.add(r.revision)
	r.serial, r.doubt = d.position.Serial, keepwatch.Added
	d.records[key] = &r
}
