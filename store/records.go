package store

import (
	"cmp"
	"slices"

	"github.com/keepwatch/keepwatch"
)

// Record is what [Records] have of an object, or of its deletion.
type Record struct {
	Key keepwatch.Key
	UID keepwatch.UID
	// Revision is the object's, of its last state if it was deleted.
	Revision keepwatch.Revision
	// Created is the revision at which the store received the object. Stored is the one at which it received this
	// state, or the deletion.
	Created, Stored keepwatch.Revision
	// Sum is the hash of the object's content, 0 if it is not known; see [Summed].
	Sum uint64
}

// Span is a range of revisions after From, up to To.
type Span struct{ From, To keepwatch.Revision }

// Records are a store's state without contents, and its deletions. A store that begins with them
// ([Options.Records]) takes its first list as the difference to them: watchers resume from revisions before that
// list.
type Records struct {
	// Revision is the revision of the state, zero if there is none.
	Revision keepwatch.Revision
	// Horizon is the oldest revision since which Deleted is complete, except within Gaps. Gaps are the spans of
	// which only the difference is known, oldest first.
	Horizon keepwatch.Revision
	Gaps    []Span
	// Objects are in any order. Deleted are the deletions in the order of their revisions.
	Objects, Deleted []Record
}

// RecordsDelta is the difference between the records of two states of a store.
type RecordsDelta struct {
	// Reset is true if the later records do not continue the earlier ones, which must be dropped first.
	Reset bool
	// Revision, Horizon and Gaps are those of the later records. Deletions up to Horizon are no longer needed.
	Revision, Horizon keepwatch.Revision
	Gaps              []Span
	// Objects are new or have changed, and Gone no longer exist. Deleted are the deletions since.
	Objects []Record
	Gone    []keepwatch.Key
	Deleted []Record
}

// RecordsSince returns the difference between the records of a snapshot, or of no state if it is the zero one, and
// those of the newest one. It closes newer once a newer snapshot is published. It does not block.
func (s *Store) RecordsSince(seen *Snapshot) (delta RecordsDelta, now *Snapshot, newer <-chan struct{}) {
	newer = s.notifiers.all.wait() // before the view is loaded, so that none is missed
	v := s.view.Load()
	now = v.snapshot
	delta = RecordsDelta{Revision: now.revision, Horizon: v.graveyard.horizon}
	for _, gap := range v.graveyard.spans {
		delta.Gaps = append(delta.Gaps, Span{gap.from, gap.to})
	}
	base := seen
	if seen.revision == 0 || seen.epoch != now.epoch {
		delta.Reset, base = true, &Snapshot{}
	}
	diff(base.tree, now.tree, func(before, after *entry) {
		if after == nil {
			delta.Gone = append(delta.Gone, before.object.Key())
			return
		}
		delta.Objects = append(delta.Objects, after.record())
	})
	v.graveyard.since(base.revision, func(t tombstone) { delta.Deleted = append(delta.Deleted, t.record()) })
	return delta, now, newer
}

func (e *entry) record() Record {
	return Record{e.object.Key(), e.object.UID(), e.object.Revision(), e.created, e.stored, sumOf(e.object)}
}

func (t tombstone) record() Record {
	return Record{t.object.Key(), t.object.UID(), t.object.Revision(), t.created, t.revision, 0}
}

func sumOf(o keepwatch.Object) uint64 {
	if s, ok := o.(Summed); ok {
		return s.Sum()
	}
	return 0
}

// recorded is an object of which only the record is known.
type recorded struct{ Record }

func (o recorded) Key() keepwatch.Key           { return o.Record.Key }
func (o recorded) UID() keepwatch.UID           { return o.Record.UID }
func (o recorded) Revision() keepwatch.Revision { return o.Record.Revision }
func (o recorded) Sum() uint64                  { return o.Record.Sum }

// describes reports whether an object is the recorded state. A record or an object without a sum is
// compared by UID and revision alone.
func (o recorded) describes(p keepwatch.Object) bool {
	sum := sumOf(p)
	return sameState(o, p) && (o.Record.Sum == 0 || sum == 0 || o.Record.Sum == sum)
}

// view returns the view that a store has whose state is the records.
func (r *Records) view(o Options) *view {
	ed := tree{}.edit()
	state := &Snapshot{revision: r.Revision}
	for _, record := range r.Objects {
		object := recorded{record}
		ed.put(ed.seek(record.Key), record.Key, &entry{object, record.Created, record.Stored})
		state.digest = state.digest.with(object)
	}
	state.tree = ed.publish()
	deletions := &graveyard{horizon: r.Horizon}
	for _, record := range slices.SortedStableFunc(slices.Values(r.Deleted), func(a, b Record) int {
		return cmp.Compare(a.Stored, b.Stored)
	}) {
		deletions.add(tombstone{object: o.Deleted(record), created: record.Created, revision: record.Stored}, o)
	}
	for _, gap := range r.Gaps {
		deletions.addSpan(span{gap.From, gap.To})
	}
	return &view{snapshot: state, graveyard: deletions, invalid: keepwatch.GapDowntime}
}

// beginning returns the view that a list is compared with: that of the records, if it is the first list and belongs to
// the same history, or the store's own. s.writing is locked.
func (s *Store) beginning(relist keepwatch.Relist) *view {
	v := s.view.Load()
	switch {
	case s.records == nil:
		return v
	case relist.Reason == keepwatch.GapRewind, relist.To > 0 && relist.To < s.records.snapshot.revision:
		s.records = nil // of another history: the source was restored from a backup, or is another one
		return v
	}
	return s.records
}

// forget drops the records, which belong to another history.
func (s *Store) forget() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.records = nil
}

// adopt stores the content of an object that equals its record.
func (t *txn) adopt(p position, o keepwatch.Object) {
	t.put(p, o.Key(), &entry{o, p.created, p.stored})
}

// adopted reports whether an entry is another one's, with its content.
func (e *entry) adopted(after *entry) bool {
	record, only := e.object.(recorded)
	return only && after != nil && record.describes(after.object)
}

// fillTombstones replaces the records of deleted objects.
func (t *txn) fillTombstones(o Options) {
	for i := range t.tombstones {
		if r, only := t.tombstones[i].object.(recorded); only {
			t.tombstones[i].object = o.Deleted(r.Record)
		}
	}
}

// CanResume reports whether a watcher with a filter can resume from a revision of the current epoch.
func (s *Store) CanResume(from keepwatch.Revision, f Filter) bool {
	v := s.view.Load()
	c := Cursor{Epoch: v.snapshot.epoch, Revision: from}
	_, within := v.window.since(c)
	return within || !c.before(v.snapshot.Cursor()) || v.since(c, f) == nil
}
