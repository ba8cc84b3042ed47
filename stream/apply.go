package stream

import "github.com/keepwatch/keepwatch"

// applyBatch adds the changes of a batch, and returns how many it dropped.
func (d *delivery) applyBatch(batch keepwatch.Batch) (dropped int, err error) {
	for _, c := range batch.Changes {
		isNew, err := d.apply(c, batch.To)
		if err != nil {
			return 0, err
		}
		if !isNew {
			dropped++
		}
	}
	return dropped, nil
}

// apply adds one change of the history. It returns false for a duplicate, which it drops:
// a state that is not newer than the consumer's, or the deletion of an object that the
// consumer does not have. A new change must be above the cursor, in order, and within its
// batch; otherwise apply returns a ProtocolViolation. So it does for the deletion of a state at that
// state's own revision: it is none of an earlier state, and the source does not show when the object was deleted.
func (d *delivery) apply(c keepwatch.Change, to keepwatch.Revision) (isNew bool, err error) {
	o, err := d.objectOf(c.Object)
	if err != nil {
		return false, err
	}
	key := o.Key().String()
	prior, known, err := d.get(key)
	switch {
	case err != nil:
		return false, err
	case known && c.Type == keepwatch.Deleted && c.Revision == prior.revision && o.UID() == prior.uid:
		return false, keepwatch.Failed(keepwatch.ProtocolViolation, "%s was deleted at %d, but exists at that revision", key,
			c.Revision)
	case known && c.Revision <= prior.revision, !known && c.Type == keepwatch.Deleted:
		return false, nil
	case c.Revision <= d.start || c.Revision < d.last || c.Revision > to:
		return false, keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s %s at %d is out of order: behind %d, in a batch up to %d", c.Type, key, c.Revision, d.last, to)
	}
	d.last = c.Revision
	d.appendChange(c, o, key, prior, known)
	return true, nil
}

// appendChange adds the events of a new change.
func (d *delivery) appendChange(c keepwatch.Change, o Object, key string, prior record, known bool) {
	same := known && prior.uid == o.UID()
	switch {
	case same && c.Type == keepwatch.Deleted:
		d.remove(key, c.Revision, o)
	case same:
		d.modify(key, prior, o, keepwatch.Modified)
	default:
		// The object that had the name was deleted, although the source did not report it (P6).
		if known {
			d.remove(key, c.Revision, lastKnown{key, prior})
		}
		if c.Type != keepwatch.Deleted {
			d.add(key, o)
		}
	}
}
