package stream

import (
	"context"

	"github.com/keepwatch/keepwatch"
)

// commitSize is how many deletions are told in one piece at the end of a list.
const commitSize = 500

// replacement is a list on its way to the consumer. Its objects are told as they
// come, as far as they differ from the index; what was told stays told when the
// list is discarded, and the next list is compared with that.
type replacement struct {
	stream *Stream
	relist keepwatch.Relist
	seen   serials
}

// Replace begins a difference. A consumer that was synced before is told of the
// gap. See keepwatch.Target.
//
// A list below what was told already is refused as Rewound: it may come from a
// replica that is late. The list that is read because of that is not, and counts
// as a rewind if it is below as well.
func (s *Stream) Replace(_ context.Context, relist keepwatch.Relist) (keepwatch.Replacement, error) {
	if relist.To == 0 && s.position.Cursor > 0 {
		return nil, keepwatch.Failed(keepwatch.StreamingListUnsupported,
			"the difference from revision %d on that was begun earlier is taken from a paged list", s.position.Cursor)
	}
	if s.position.Void != "" && relist.Reason != keepwatch.GapRewind {
		relist.Reason = s.position.Void
	}
	if relist.To > 0 && relist.To < s.position.Told && relist.Reason != keepwatch.GapRewind {
		if err := s.distrust("the list shows revision %d, but %d was shown before", relist.To, s.position.Told); err != nil {
			return nil, err
		}
		relist.Reason = keepwatch.GapRewind
	}
	if err := s.declare(relist); err != nil {
		return nil, err
	}
	return &replacement{stream: s, relist: relist, seen: serials{}}, nil
}

// declare tells of the gap, and of what a crash has left open. From then on the
// next run lists too: its history could contradict what the difference has told.
func (s *Stream) declare(relist keepwatch.Relist) error {
	t := s.begin()
	if t.position.Cursor > 0 && !t.position.Relisting {
		t.position.Relisting, t.moved = true, true
		if err := s.tell(t); err != nil {
			return err
		}
		t = s.begin()
	}
	t.gap(relist)
	if err := t.retell(); err != nil {
		return err
	}
	return s.tell(t)
}

// gap tells a consumer that was synced before that a difference follows. Without
// a reason it is one that an earlier run has begun: nobody was following since.
func (t *tail) gap(relist keepwatch.Relist) {
	if relist.Reason == "" {
		relist.Reason = keepwatch.GapDowntime
	}
	if t.position.Cursor > 0 {
		t.messages = append(t.messages, Gap{From: t.position.Cursor, To: relist.To, Reason: relist.Reason})
	}
}

// Put tells how the next objects of the list differ from what the consumer
// knows.
func (r *replacement) Put(_ context.Context, objects []keepwatch.Object) error {
	t := r.stream.begin()
	for _, o := range objects {
		o, err := tellable(o)
		if err != nil {
			return err
		}
		if err := r.compare(t, o); err != nil {
			return err
		}
	}
	return r.stream.tell(t)
}

// compare tells how one object of the list differs from the index. After a
// rewind any other revision is a change; the same revision is taken for the same
// state, since a consumer that goes by ids would do so too.
func (r *replacement) compare(t *tail, o Object) error {
	key := o.Key().String()
	held, known, err := t.get(key)
	if err != nil {
		return err
	}
	switch {
	case !known:
		r.seen.add(t.add(key, o))
	case held.uid != o.UID():
		t.remove(key, max(r.relist.To, o.Revision()), lastKnown{key, held})
		r.seen.add(t.add(key, o))
	default:
		r.seen.add(held.serial)
		return r.compareStates(t, key, held, o)
	}
	return nil
}

// compareStates tells how an object differs from what the consumer knows of it.
func (r *replacement) compareStates(t *tail, key string, held record, o Object) error {
	switch {
	case held.doubt != 0:
		t.change(key, held, o, held.doubt)
	case o.Revision() < held.revision && r.relist.To > 0 && r.relist.Reason != keepwatch.GapRewind:
		err := r.stream.distrust("the list at %d shows %s at %d, but it was shown at %d", r.relist.To, key, o.Revision(), held.revision)
		if err != nil {
			return err
		}
		r.relist.Reason = keepwatch.GapRewind
		t.gap(r.relist)
		t.change(key, held, o, keepwatch.Modified)
	case o.Revision() != held.revision:
		t.change(key, held, o, keepwatch.Modified)
	}
	return nil
}

// Commit tells what the list did not have as deleted, and that the consumer is
// synced.
func (r *replacement) Commit(_ context.Context, to keepwatch.Revision) error {
	s := r.stream
	keys, err := s.state.unseen(r.seen)
	if err != nil {
		return err
	}
	for len(keys) > 0 {
		n := min(commitSize, len(keys))
		if err := s.tellGone(keys[:n], to); err != nil {
			return err
		}
		keys = keys[n:]
	}
	t := s.begin()
	t.position.Cursor, t.position.Told, t.moved = to, to, true
	t.position.Relisting, t.position.Void = false, ""
	t.synced()
	if err := s.tell(t); err != nil {
		return err
	}
	s.doubted = false
	return nil
}

// tellGone tells that the objects under keys are not there any more at a
// revision.
func (s *Stream) tellGone(keys []string, at keepwatch.Revision) error {
	t := s.begin()
	for _, key := range keys {
		held, known, err := t.get(key)
		if err != nil {
			return err
		}
		if known {
			t.remove(key, at, lastKnown{key, held})
		}
	}
	return s.tell(t)
}

// Discard gives the list up. What was told of it stays in the index.
func (r *replacement) Discard() {}
