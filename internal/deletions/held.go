// Package deletions holds the deletions of a watch that do not advance its revision.
//
// A server that resumes a watch over history that it does not have sends the deletions in it first, at the revision that its
// client already has: a client that is cut off behind some of them resumes there, and receives all of them. They belong
// to the next revision, and a source holds them until then.
package deletions

import "github.com/keepwatch/keepwatch"

// Bounds of what is held.
const (
	maxChanges = 100_000
	maxBytes   = 64 << 20
)

// Held are the deletions of one stream that wait for its next revision. The zero value is ready for use. It is not safe for
// concurrent use.
type Held struct {
	changes []keepwatch.Change
	bytes   int
	// at has the keys that were deleted at the stream's revision, true for those in changes.
	at map[keepwatch.Key]bool
}

// Hold reports whether a change waits for the revision behind the one that the stream has reached, or repeats one that
// does. size is that of its object, or zero. Of more than can be held it fails with a ProtocolViolation.
func (h *Held) Hold(c keepwatch.Change, size int, reached keepwatch.Revision) (bool, *keepwatch.Failure) {
	if c.Type != keepwatch.Deleted || c.Revision < reached {
		return false, nil
	}
	key := c.Object.Key()
	waits, repeated := h.at[key]
	if repeated {
		return waits, nil
	}
	if h.at == nil {
		h.at = map[keepwatch.Key]bool{}
	}
	waits = c.Revision == reached
	h.at[key] = waits
	if !waits {
		return false, nil
	}
	h.changes = append(h.changes, c)
	h.bytes += size
	if len(h.changes) > maxChanges || h.bytes > maxBytes {
		return true, keepwatch.Failed(keepwatch.ProtocolViolation,
			"more than %d deletions, or %d MiB, at revision %v, which the stream had reached", maxChanges, maxBytes>>20, reached)
	}
	return true, nil
}

// Release returns what waits, as changes of the stream's next revision, and the size of the objects. It is called whenever the
// stream advances.
func (h *Held) Release(next keepwatch.Revision) (changes []keepwatch.Change, bytes int) {
	changes, bytes = h.changes, h.bytes
	*h = Held{}
	for i := range changes {
		changes[i].Revision = next
	}
	return changes, bytes
}
