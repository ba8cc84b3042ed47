package operators

import (
	"context"
	"fmt"
	"maps"
)

// upgradedKind is the kind of plans in which Options.Next takes over.
const upgradedKind = "upgraded"

// withNext adds the reference of the operator's next version, if there is one.
func (ref *reference) withNext(ctx context.Context, from *world, o Options, steps []step) error {
	if o.Next == nil {
		return nil
	}
	o.Operator = *o.Next
	next, findings, err := newReference(ctx, from, o, steps)
	if err != nil {
		return fmt.Errorf("the next version: %w", err)
	}
	if len(findings) > 0 || len(next.states) < len(steps) {
		return unperformable{fmt.Errorf("judge the next version alone first: without a fault: %s", next.shortcoming(findings))}
	}
	ref.next = next
	return nil
}

func (ref *reference) hasNext(Place) bool { return ref.next != nil }

// forUpgrade is the reference for the judgement of a run in which the next version has taken over. What either version
// does without a fault is no finding.
func (ref *reference) forUpgrade() *reference {
	both := *ref.next
	both.deletes, both.restores, both.refused = maps.Clone(ref.deletes), maps.Clone(ref.restores), maps.Clone(ref.refused)
	maps.Copy(both.deletes, ref.next.deletes)
	maps.Copy(both.restores, ref.next.restores)
	maps.Copy(both.refused, ref.next.refused)
	return &both
}

func takeOver(d *disturbance, x exchange) {
	defer x.t.resume()
	x.serveLast()
	d.happens("the operator is killed: its next version is started")
	x.t.killNext()
}

// isUpgraded reports whether the next version is to run.
func (r *run) isUpgraded() bool {
	if r.fault == nil || r.fault.Name != upgradedKind {
		return false
	}
	found, _ := r.fault.state()
	return found
}
