// Package deletions defers the deletions of a watch that do not advance its revision.
//
// A server that resumes a watch over history that it does not have sends the deletions in it first, at the revision
// that its client already has: a client that is cut off behind some of them resumes there, and receives all of them.
// They belong to the next revision, and a source defers them until then.
//
// The objects of a lease of etcd's, as Events have it, are deleted at one revision as well, and API servers send none
// of these deletions again to a client that resumes there. A source joins them to the batch of the first one while it
// can, and defers the others. If its stream ends before they are delivered, only a list shows them.
//
//	pending.go   the deletions of one stream that wait
//	leased.go    which objects have leases
package deletions

import "github.com/keepwatch/keepwatch"

// Bounds of a stream's pending deletions.
const (
	maxChanges = 100_000
	maxBytes   = 64 << 20
)

// Pending has the deletions of one stream that wait for its next revision. The zero value is ready for use. It is not
// safe for concurrent use.
type Pending struct {
	changes []keepwatch.Change
	bytes   int
	// at has the keys that were deleted at the stream's revision, true for those in changes.
	at        map[keepwatch.Key]bool
	delivered bool // a deletion at the stream's revision was, and advanced it
	// bookmarked: a bookmark was at the stream's revision. behind: a deletion has waited since.
	bookmarked, behind bool
}

// Follows reports whether a change is the deletion of another object at a revision that the stream has reached by a
// deletion.
func (p *Pending) Follows(c keepwatch.Change, reached keepwatch.Revision) bool {
	if c.Type != keepwatch.Deleted || c.Revision != reached || !p.delivered || len(p.changes) > 0 {
		return false
	}
	_, repeated := p.at[c.Object.Key()]
	return !repeated
}

// Joined notes a change that Follows as one that was delivered with the first one.
func (p *Pending) Joined(c keepwatch.Change) { p.at[c.Object.Key()] = false }

// Bookmark notes a bookmark at the revision that the stream has reached. It fails with a ProtocolViolation if a
// deletion has waited since an earlier one: that bookmark was sent too early, and nothing follows to which the deletion
// belongs.
func (p *Pending) Bookmark(reached keepwatch.Revision) *keepwatch.Failure {
	if p.behind {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "a deletion at revision %v between two bookmarks at it", reached)
	}
	p.bookmarked = true
	return nil
}

// IsCut reports whether a stream that ends now leaves out deletions that a server may not send to a client that resumes
// there: of the others of a lease it has delivered a part, or a bookmark was before them.
func (p *Pending) IsCut(leased bool) bool {
	return p.behind || leased && p.delivered && len(p.changes) > 0
}

// Defer reports whether a change waits for the revision behind the one that the stream has reached, or repeats one that
// does. size is that of its object, or zero. Beyond the bounds it fails with a ProtocolViolation.
func (p *Pending) Defer(c keepwatch.Change, size int, reached keepwatch.Revision) (bool, *keepwatch.Failure) {
	if c.Type != keepwatch.Deleted || c.Revision < reached {
		return false, nil
	}
	key := c.Object.Key()
	waits, repeated := p.at[key]
	if repeated {
		return waits, nil
	}
	if p.at == nil {
		p.at = map[keepwatch.Key]bool{}
	}
	waits = c.Revision == reached
	p.at[key] = waits
	if !waits {
		p.delivered = true
		return false, nil
	}
	p.changes = append(p.changes, c)
	p.bytes += size
	p.behind = p.behind || p.bookmarked
	if len(p.changes) > maxChanges || p.bytes > maxBytes {
		return true, keepwatch.Failed(keepwatch.ProtocolViolation,
			"more than %d deletions, or %d MiB, at revision %v, which the stream had reached", maxChanges, maxBytes>>20, reached)
	}
	return true, nil
}

// Release returns what waits, as changes of the stream's next revision, and the size of the objects. It is called
// whenever the stream advances.
func (p *Pending) Release(next keepwatch.Revision) (changes []keepwatch.Change, bytes int) {
	changes, bytes = p.changes, p.bytes
	*p = Pending{}
	for i := range changes {
		changes[i].Revision = next
	}
	return changes, bytes
}
