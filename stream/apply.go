package stream

import "github.com/keepwatch/keepwatch"

// applyAll takes a batch. It returns how many changes were not news.
func (t *tail) applyAll(batch keepwatch.Batch) (dropped int, err error) {
	for _, c := range batch.Changes {
		news, err := t.apply(c, batch.To)
		if err != nil {
			return 0, err
		}
		if !news {
			dropped++
		}
	}
	return dropped, nil
}

// apply takes one change of the history. It reports false for one that is not
// news: a state that is not newer than what the consumer knows, or the end of an
// object that it does not know. What is news must be beyond everything held, in
// order, and within its batch.
func (t *tail) apply(c keepwatch.Change, to keepwatch.Revision) (news bool, err error) {
	o, err := tellable(c.Object)
	if err != nil {
		return false, err
	}
	key := o.Key().String()
	held, known, err := t.get(key)
	switch {
	case err != nil:
		return false, err
	case known && c.Revision <= held.revision, !known && c.Type == keepwatch.Deleted:
		return false, nil
	case c.Revision <= t.held || c.Revision < t.last || c.Revision > to:
		return false, keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s %s at %d is out of order: behind %d, in a batch up to %d", c.Type, key, c.Revision, t.last, to)
	}
	t.last = c.Revision
	t.take(c, o, key, held, known)
	return true, nil
}

// take tells a change that is news.
func (t *tail) take(c keepwatch.Change, o Object, key string, held record, known bool) {
	same := known && held.uid == o.UID()
	switch {
	case same && c.Type == keepwatch.Deleted:
		t.remove(key, c.Revision, o)
	case same:
		t.change(key, held, o, keepwatch.Modified)
	default:
		// Whatever is held under the name is gone, though nobody said so (P6).
		if known {
			t.remove(key, c.Revision, lastKnown{key, held})
		}
		if c.Type != keepwatch.Deleted {
			t.add(key, o)
		}
	}
}
