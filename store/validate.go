package store

import (
	"strings"

	"github.com/keepwatch/keepwatch"
)

// Versioned is implemented by objects whose source numbers the writes of each
// key: 1 for a create, one more for each update (etcd's Version). The store then
// detects a missed event at the next event of its key. 0 means that the source does not
// number writes; nothing is checked then.
type Versioned interface{ Version() int64 }

// validateBatch checks that a batch continues the current state (P1).
func validateBatch(v *view, b keepwatch.Batch) error {
	current := v.snapshot.revision
	switch {
	case current == 0, v.invalid != "":
		return keepwatch.Failed(keepwatch.InvariantViolation, "history (%d, %d] arrives before the list that is due", b.From,
			b.To)
	case b.From > current:
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"history from %d on leaves a hole after %d", b.From, current)
	case b.To < b.From, b.To < current && b.Bookmark():
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"history (%d, %d] goes back from %d", b.From, b.To, current)
	}
	return nil
}

// validateChange checks a change of a batch up to a revision by itself.
func validateChange(c keepwatch.Change, to keepwatch.Revision) error {
	if err := validateKey(c.Object); err != nil {
		return err
	}
	written := c.Object.Revision()
	switch {
	case c.Type == keepwatch.Deleted && written <= c.Revision && c.Revision <= to:
	case (c.Type == keepwatch.Added || c.Type == keepwatch.Modified) && written == c.Revision && c.Revision <= to:
	default:
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s %s at %d, written at %d, can't be part of the history up to %d", c.Type, c.Object.Key(), c.Revision, written, to)
	}
	return nil
}

// validateKey checks that an object's key is unique in the order: a slash within a
// namespace would make two keys equal.
func validateKey(o keepwatch.Object) error {
	if key := o.Key(); key.Name == "" || strings.Contains(key.Namespace, "/") {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "%q in namespace %q is no object's name", key.Name,
			key.Namespace)
	}
	return nil
}

// validatePrior checks that a change follows the current entry of its key (P2).
func validatePrior(c keepwatch.Change, current *entry) error {
	key, uid := c.Object.Key(), c.Object.UID()
	if current == nil && c.Type != keepwatch.Added {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "%s %s at %d, but it was never added", c.Type, key, c.Revision)
	}
	if c.Type == keepwatch.Deleted {
		if uid != "" && uid != current.object.UID() {
			return keepwatch.Failed(keepwatch.ProtocolViolation,
				"%s at %d deletes UID %s, but the current UID is %s: an event was missed", key, c.Revision, uid,
				current.object.UID())
		}
		return nil
	}
	prior := int64(0)
	if current != nil && current.object.UID() == uid {
		if prior = version(current.object); prior == 0 {
			return nil
		}
	}
	if next := version(c.Object); next != 0 && next != prior+1 {
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s has version %d after %d: an event was missed", key, next, prior)
	}
	return nil
}

// version returns the number of an object's last write, or 0 if the source does not
// number writes: kine sends 0 where etcd counts.
func version(o keepwatch.Object) int64 {
	if v, ok := o.(Versioned); ok {
		return v.Version()
	}
	return 0
}
