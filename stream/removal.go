package stream

import "github.com/keepwatch/keepwatch"

// removal is a delivery of deletions that a difference has found: its list does not have the objects, or the resource
// has ended. An object up to its revision that a later list has was deleted for the consumer, and exists all the same.
type removal struct {
	To     keepwatch.Revision `json:"to"`
	Number uint64             `json:"number"`
}

// remove records a removal at a revision.
func (p *position) remove(at keepwatch.Revision) {
	p.Removed = removal{To: max(p.Removed.To, at), Number: p.Removed.Number + 1}
}

// add is called before an object is delivered as Added.
func (p *position) add(object keepwatch.Revision) {
	if object <= p.Removed.To {
		p.Again = p.Removed
	}
}

// forget is called at a rewind, where a consumer forgets the ids that it has seen.
func (p *position) forget() { p.Removed, p.Again = removal{}, removal{} }

// eventID returns the id of an event, which the consumer has not seen; see keepwatch.Change.
func (p position) eventID(e Event) string {
	c := keepwatch.Change{Type: e.Type, Revision: e.Revision, Object: e.Object}
	if c.Object.Revision() <= p.Again.To {
		return c.IDAgain(p.Again.Number)
	}
	return c.ID()
}
