package nats

import (
	"maps"

	"github.com/nats-io/nats.go"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/broker"
	"github.com/keepwatch/keepwatch/stream"
)

// fold is what messages add up to.
type fold struct {
	objects *broker.Index
	writer  string // that has claimed the sink last
	cursors broker.Cursors[*cursor]
	tails   map[broker.StreamKey]*tail
	// deleted has the last changes of deleted objects, by key, unless the cursor is known to have reached them.
	deleted map[broker.StreamKey]map[string]change
	// changed has the changes of the stream that the bucket does not have.
	changed []change
}

// tail is the first part of a piece that a crash has cut in two: the changes of a stream behind its cursor.
type tail struct {
	delivered keepwatch.Revision
	gap       *change
}

func newFold() *fold {
	return &fold{objects: broker.NewIndex(), cursors: broker.Cursors[*cursor]{}, tails: map[broker.StreamKey]*tail{},
		deleted: map[broker.StreamKey]map[string]change{}}
}

// add adds a message. Messages of other programs have no headers of ours.
func (f *fold) add(h nats.Header) error {
	var x change
	if found, err := readHeader(h, changeHeader, &x); err != nil {
		return err
	} else if found {
		f.change(x)
	}
	if token := h.Get(writerHeader); token != "" {
		f.writer = token
	}
	c := &cursor{}
	found, err := readHeader(h, cursorHeader, c)
	if err != nil || !found {
		return err
	}
	key := broker.KeyOf(c.Identity)
	f.cursors[key] = c
	delete(f.tails, key)
	return nil
}

// addBehind adds a message of the stream that the bucket does not have.
func (f *fold) addBehind(h nats.Header) error {
	var x change
	if found, err := readHeader(h, changeHeader, &x); err != nil {
		return err
	} else if found && x.Name != "" {
		f.changed = append(f.changed, x)
	}
	return f.add(h)
}

func (f *fold) change(x change) {
	key := broker.StreamKey{Resource: x.Resource, Namespace: x.Scope}
	t := f.tails[key]
	if t == nil {
		t = &tail{}
		f.tails[key] = t
	}
	t.delivered = max(t.delivered, x.Revision)
	switch {
	case x.Type == "GAP":
		t.gap = &x
	case x.Name == "": // of no object: SYNCED, for example
	case x.Type == keepwatch.Deleted.String():
		f.objects.Remove(x.Resource, x.key())
		if c := f.cursors[key]; c != nil && c.reached(x) {
			return
		}
		if f.deleted[key] == nil {
			f.deleted[key] = map[string]change{}
		}
		f.deleted[key][x.key().String()] = x
	default:
		f.objects.Put(x.Resource, stream.Entry{Key: x.key(), UID: x.UID, Revision: x.Revision, Rendition: x.Rendition})
		delete(f.deleted[key], x.key().String())
	}
}

// sequence returns the sequence of the stream up to which the bucket is complete.
func (f *fold) sequence() (last uint64) {
	for _, c := range f.cursors {
		last = max(last, c.Sequence)
	}
	return last
}

// finish adds the tails and the deletions behind them to the cursors.
func (f *fold) finish() error {
	for key, t := range f.tails {
		c := f.cursors[key]
		if c == nil {
			return refusef("%s: its objects have no cursor: it was changed by another program", key.Resource)
		}
		if err := c.addTail(t, f.objects); err != nil {
			return refusef("%s: %w", key.Resource, err)
		}
	}
	for key, c := range f.cursors {
		if c.Revision > 0 && c.Gap == "" { // otherwise a list follows, which shows no deleted objects
			c.deleted = f.deleted[key]
			c.passed()
		}
	}
	return nil
}

func (c *cursor) addTail(t *tail, objects *broker.Index) error {
	s := stream.Stored{Position: c.Position, Entries: objects.Entries(c.Identity)}
	s, err := s.Interrupted(t.delivered)
	if err != nil {
		return err
	}
	c.Position, c.Objects = s.Position, uint64(s.Entries.Len())
	if t.gap != nil {
		c.Gap, c.Epoch = t.gap.Reason, t.gap.Epoch
	}
	return nil
}

// reached reports whether the cursor is at a change or behind it.
func (c *cursor) reached(x change) bool {
	return x.Epoch < c.Epoch || x.Epoch == c.Epoch && x.Revision <= c.Revision
}

// repeats reports whether an event was delivered by the first part of a piece that a crash has cut in two.
func (c *cursor) repeats(e stream.Event) bool {
	x, ok := c.deleted[e.Object.Key().String()]
	return ok && (e.Revision < x.Revision || e.ID == x.ID)
}

// passed forgets the deletions that the cursor has reached.
func (c *cursor) passed() {
	maps.DeleteFunc(c.deleted, func(_ string, x change) bool { return c.reached(x) })
}
