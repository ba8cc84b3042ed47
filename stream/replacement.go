package stream

import (
	"context"
	"slices"

	"github.com/keepwatch/keepwatch"
)

const (
	// deletionsPerDelivery bounds the deletions of one delivery at the end of a list.
	deletionsPerDelivery = 500
	// unseenAtOnce bounds the keys in memory of objects that a list does not have: each time the index is read as a whole.
	unseenAtOnce = 100 * deletionsPerDelivery
)

// replacement delivers the difference between the index and a list. It delivers the
// objects of each page as they arrive. If the list is discarded, the index retains what
// was delivered, and the next list is compared with it.
type replacement struct {
	stream *Stream
	relist keepwatch.Relist
	seen   serials
	ended  keepwatch.GapReason // of End, empty for a list
}

// Replace begins a difference. A consumer that has received a Synced receives a Gap.
// See keepwatch.Target.
//
// Replace refuses a list below a revision that was delivered, with StaleReplica: the list may come from
// a replica that is behind. Only the reflector knows whether it shows the source's newest state, so that
// the source was restored. Then the next one has the reason GapRewind, and is accepted.
func (s *Stream) Replace(_ context.Context, relist keepwatch.Relist) (keepwatch.Replacement, error) {
	r, err := s.replace(relist)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (s *Stream) replace(relist keepwatch.Relist) (*replacement, error) {
	if relist.To == 0 && s.position.Cursor > 0 {
		return nil, keepwatch.Failed(keepwatch.StreamingListUnsupported,
			"the difference from revision %d on, which an earlier run began, needs a paged list", s.position.Cursor)
	}
	if s.position.Invalid != "" && relist.Reason != keepwatch.GapRewind {
		relist.Reason = s.position.Invalid
	}
	if relist.To > 0 && relist.To < s.position.Delivered && relist.Reason != keepwatch.GapRewind {
		return nil, keepwatch.Failed(keepwatch.StaleReplica, "the list is at revision %d, but %d was delivered before",
			relist.To, s.position.Delivered)
	}
	if err := s.declareGap(relist); err != nil {
		return nil, err
	}
	return &replacement{stream: s, relist: relist, seen: serials{}}, nil
}

// declareGap delivers the gap, and the announced events that a crash may have cut off.
// From then on the next run lists, too: its history could contradict the difference.
func (s *Stream) declareGap(relist keepwatch.Relist) error {
	d := s.newDelivery()
	if p := d.position; p.Cursor > 0 && (!p.Relisting || p.Ended) {
		d.position.Relisting, d.position.Ended, d.moved = true, false, true
		if err := s.deliver(d); err != nil {
			return err
		}
		d = s.newDelivery()
	}
	d.appendGap(relist)
	if err := d.redeliver(); err != nil {
		return err
	}
	if relist.Reason == keepwatch.GapRewind {
		d.position.forget()
	}
	return s.deliver(d)
}

// appendGap adds a Gap for a consumer that has received a Synced. Without a reason an
// earlier run has begun the difference, and the gap is a downtime. A consumer forgets the ids that it has seen at a
// rewind.
func (d *delivery) appendGap(relist keepwatch.Relist) {
	if relist.Reason == keepwatch.GapRewind {
		d.position.forget()
	}
	if relist.Reason == "" {
		relist.Reason = keepwatch.GapDowntime
	}
	if d.position.Cursor > 0 {
		d.messages = append(d.messages, Gap{From: d.position.Cursor, To: relist.To, Reason: relist.Reason})
	}
}

// Put delivers the difference between the next objects of the list and the index.
func (r *replacement) Put(_ context.Context, objects []keepwatch.Object) error {
	d := r.stream.newDelivery()
	for _, o := range objects {
		o, err := d.objectOf(o)
		if err != nil {
			return err
		}
		if err := r.compare(d, o); err != nil {
			return err
		}
	}
	return r.stream.deliver(d)
}

// compare adds the difference between one object of the list and the index. After a
// rewind any other revision is a change.
func (r *replacement) compare(d *delivery, o Object) error {
	key := o.Key().String()
	prior, known, err := d.get(key)
	if err != nil {
		return err
	}
	switch {
	case !known:
		r.seen.add(d.add(key, o))
	case prior.uid != o.UID():
		d.remove(key, max(r.relist.To, o.Revision()), lastKnown{key, prior})
		r.seen.add(d.add(key, o))
	default:
		r.seen.add(prior.serial)
		return r.compareStates(d, key, prior, o)
	}
	return nil
}

// compareStates adds the difference between two states of one object.
func (r *replacement) compareStates(d *delivery, key string, prior record, o Object) error {
	switch {
	case prior.doubt != 0:
		d.modify(key, prior, o, prior.doubt)
	case o.Revision() < prior.revision && r.relist.To > 0 && r.relist.Reason != keepwatch.GapRewind:
		return keepwatch.Failed(keepwatch.Rewound, "the list at %d has %s at %d, but it was delivered at %d", r.relist.To, key,
			o.Revision(), prior.revision)
	case o.Revision() != prior.revision:
		d.modify(key, prior, o, keepwatch.Modified)
	default:
		d.compareContent(key, prior, o)
	}
	return nil
}

// Commit delivers every object that the list did not have as deleted, and a Synced.
func (r *replacement) Commit(_ context.Context, to keepwatch.Revision) error {
	s := r.stream
	for more := true; more; {
		keys, err := s.state.unseen(r.seen, unseenAtOnce)
		if err != nil {
			return err
		}
		more = len(keys) == unseenAtOnce
		for part := range slices.Chunk(keys, deletionsPerDelivery) {
			if err := s.deliverDeleted(part, to); err != nil {
				return err
			}
		}
	}
	d := s.newDelivery()
	d.position.Cursor, d.position.Delivered, d.moved = to, to, true
	d.position.Ended = r.ended != ""
	d.position.Relisting, d.position.Invalid = d.position.Ended, r.ended
	d.appendSynced()
	return s.deliver(d)
}

// deliverDeleted delivers the objects under keys as deleted at a revision.
func (s *Stream) deliverDeleted(keys []string, at keepwatch.Revision) error {
	d := s.newDelivery()
	for _, key := range keys {
		prior, known, err := d.get(key)
		if err != nil {
			return err
		}
		if known {
			d.remove(key, at, lastKnown{key, prior})
			d.intents[len(d.intents)-1].difference = true
		}
	}
	d.position.remove(at)
	return s.deliver(d)
}

// End delivers what is left of a resource that the source no longer has: a Gap with the reason, a Deleted for each
// object, and a Synced without objects. It delivers nothing if the consumer has no objects and no gap is open. newest
// is a revision at which the source had no such resource; if a greater one was delivered, that one counts. The caller
// must not call Apply or Replace at the same time.
//
// From then on Revision returns zero, in the next run too: a resource that returns is listed, and its difference is a
// gap with the reason. Its history continues no cursor: it has no deletions for what was delivered as deleted here, and
// no additions for what still exists.
func (s *Stream) End(ctx context.Context, newest keepwatch.Revision, reason keepwatch.GapReason) error {
	p := s.position
	switch empty := p.Count == 0 && len(s.announced) == 0; {
	case p.Ended, empty && p.Cursor == 0:
		return nil
	case empty && !p.Relisting:
		d := s.newDelivery()
		d.position.Ended, d.position.Relisting, d.position.Invalid, d.moved = true, true, reason, true
		return s.deliver(d)
	}
	to := max(newest, p.Delivered)
	r, err := s.replace(keepwatch.Relist{To: to, Reason: reason})
	if err != nil {
		return err
	}
	r.ended = reason
	return r.Commit(ctx, to)
}

// Discard drops the list. The index retains what was delivered of it.
func (r *replacement) Discard() {}
