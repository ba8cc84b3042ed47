package cycle

import "time"

// Plan decides about a state at a time. It returns an error if the object's stored
// progress cannot be decoded.
func (s Spec) Plan(seen Seen, now time.Time) (Plan, error) {
	p := Plan{spec: s, object: seen.Object, New: s.desired(seen.Object), lastWritten: seen.Written}
	var err error
	if p.handled, err = s.stored(seen.Object, handledName); err != nil {
		return p, err
	}
	if p.handling, err = s.handling(seen.Object, p.handled); err != nil {
		return p, err
	}
	if p.records, err = s.records(seen.Object); err != nil {
		return p, err
	}
	if p.handled != nil {
		p.Old = p.handling.old(p.handled, p.New)
		p.Diff = Compare(p.Old, p.New)
	}
	p.Cause = s.detect(seen, p.Old, len(p.Diff) > 0)
	p.Step = p.decide(seen, now)
	return p, nil
}

func (p *Plan) decide(seen Seen, now time.Time) Step {
	v := view{object: seen.Object, old: p.Old, diff: p.Diff}
	if p.handled != nil && p.handling.First != nil {
		v.begun, v.first = true, p.handling.initialDiff(p.handled)
	}
	switch p.Cause {
	case Gone, Free:
		return Idle{}
	case Delete:
		return p.planDelete(seen, v, now)
	}
	if edit := p.finalizer(seen, v); edit != KeepFinalizer {
		edits := p.spec.edits()
		edits.Finalizer = edit
		return Write{Edits: edits}
	}
	if !p.spec.hasChangeHandlers(v) {
		return Idle{}
	}
	if p.Cause == Noop {
		return p.removeLeftovers()
	}
	p.assignments = p.spec.assignments(p.Cause, seen, v, p.records)
	return p.planChange(now)
}

// finalizer returns the change of our finalizer for an object that is not being deleted. It
// removes the finalizer only when no daemon runs.
func (p *Plan) finalizer(seen Seen, v view) FinalizerEdit {
	needed := seen.WantsDaemon || p.spec.needsFinalizer(v)
	switch there := p.spec.HasFinalizer(seen.Object); {
	case needed && !there:
		return AddFinalizer
	case !needed && there && !seen.RunsDaemon:
		return RemoveFinalizer
	}
	return KeepFinalizer
}

// planDelete continues a deletion. It calls no handler while a timer runs, and removes the finalizer when every handler
// is done and no daemon runs.
func (p *Plan) planDelete(seen Seen, v view, now time.Time) Step {
	p.assignments = p.spec.assignments(Delete, seen, v, p.records)
	ours := p.spec.HasFinalizer(seen.Object)
	if !ours && len(p.assignments) == 0 {
		return Idle{}
	}
	if seen.RunsTimer {
		return AwaitTasks{}
	}
	if step := p.next(now); step != nil {
		return step
	}
	if seen.RunsDaemon && ours {
		return AwaitTasks{}
	}
	edits := p.removeProgress()
	if p.spec.heldByOthers(seen.Object) {
		p.keepOptional(edits)
	}
	if ours {
		edits.Finalizer = RemoveFinalizer
	}
	if edits.Empty() {
		return Idle{Completed: true}
	}
	return Write{Edits: edits, Completed: true}
}

// keepOptional reverts the removal of the records of optional handlers, which are called again otherwise: another
// finalizer keeps the object after the end of this cycle.
func (p *Plan) keepOptional(edits Edits) {
	for _, d := range p.assignments {
		if d.purpose == Delete && p.spec.Handlers[d.index].Optional {
			edits.unchanged(d.slot)
		}
	}
}

// removeLeftovers removes progress of handlers that no longer apply.
func (p *Plan) removeLeftovers() Step {
	if edits := p.removeProgress(); !edits.Empty() {
		return Write{Edits: edits}
	}
	return Idle{}
}

// planChange continues a creation, an update or a resumption.
func (p *Plan) planChange(now time.Time) Step {
	if step := p.next(now); step != nil {
		return step
	}
	edits := p.complete()
	if edits.Empty() {
		return Idle{Completed: true}
	}
	return Write{Edits: edits, Completed: true}
}

// next returns a step for the unfinished handler with the fewest calls, the first declared
// of several. If all of them wait, it returns a Sleep; if none is left, nil. A record whose times are in the future
// beyond reason is written again first.
func (p *Plan) next(now time.Time) Step {
	if edits := p.correctTimes(now); !edits.Empty() {
		return Write{Edits: edits}
	}
	var next *assignment
	var until time.Time
	for i := range p.assignments {
		d := &p.assignments[i]
		switch {
		case d.record.finished():
		case d.record.Delayed.After(now):
			if until.IsZero() || d.record.Delayed.Before(until) {
				until = d.record.Delayed
			}
		case next == nil || d.record.Retries < next.record.Retries:
			next = d
		}
	}
	switch {
	case next != nil:
		return p.call(next, now)
	case !until.IsZero():
		return Sleep{Until: until}
	}
	return nil
}

// correctTimes corrects the records of unfinished handlers, and returns what is to be written for it.
func (p *Plan) correctTimes(now time.Time) Edits {
	edits := p.spec.edits()
	for i := range p.assignments {
		d := &p.assignments[i]
		if d.known && !d.record.finished() && d.record.correct(now, p.spec.Handlers[d.index].Backoff.Max) {
			edits.record(d.slot, &d.record)
		}
	}
	return edits
}

// call returns a Call, a Write if the handler reached a limit while no operator ran, or a Refuse if its progress could
// not be stored.
func (p *Plan) call(d *assignment, now time.Time) Step {
	if !d.known {
		d.record = Record{Started: stamp(now), Purpose: d.purpose.String()}
	}
	h := p.spec.Handlers[d.index]
	if err := h.exhausted(d.record.Retries, now.Sub(d.record.Started)); err != nil {
		d.record.Stopped, d.record.Delayed, d.record.Wait = stamp(now), time.Time{}, 0
		d.record.Failure, d.record.Message = true, Brief(err.Error())
		write := p.writeRecord(d)
		p.writeDeferred(write.Edits, d)
		return write
	}
	call := Call{Handler: h, Index: d.index, Purpose: d.purpose, Retry: d.record.Retries, Started: d.record.Started}
	if err := p.checkSpace(call, now); err != nil {
		return Refuse{err}
	}
	return call
}

// writeInterval is the least time between two writes of failures whose retries are due
// sooner than that. It bounds what one failing object costs the server. kopf writes after
// each call.
const writeInterval = time.Second

// Called returns a Write or a Defer after a call. now is when the call returned.
//
// A failure is deferred if it changes nothing but the handler's own record, the retry
// is due within writeInterval, and the last write was within writeInterval. The first
// failure of a handler is always written, and so is a call that saw another state of the
// object than the calls before: a new process must know that the handler saw it.
func (p Plan) Called(c Call, v Verdict, now time.Time) Step {
	assigned := append([]assignment(nil), p.assignments...)
	p.assignments = assigned
	for i := range assigned {
		d := &assigned[i]
		if d.index != c.Index {
			continue
		}
		d.record.Retries = c.Retry + 1
		d.record.Message, d.record.Delayed, d.record.Stopped, d.record.Wait = "", time.Time{}, time.Time{}, 0
		if v.Err != nil {
			d.record.Message = Brief(v.Err.Error())
		}
		if v.Final {
			d.record.Stopped = stamp(now)
			d.record.Success, d.record.Failure = v.Err == nil, v.Err != nil
		} else {
			d.record.Delayed, d.record.Wait = stamp(now.Add(v.Delay)), v.Delay.Seconds()
		}
		write := p.writeRecord(d)
		if soon := v.Delay < writeInterval && now.Sub(p.lastWritten) < writeInterval; soon && !v.Final && d.known &&
			write.Edits.only(d.slot) {
			return Defer{d.slot, d.record}
		}
		p.writeDeferred(write.Edits, d)
		return write
	}
	panic("cycle: the call is not of this plan")
}

// writeRecord returns the write after an assignment's record has changed.
func (p *Plan) writeRecord(d *assignment) Write {
	if p.Cause == Create || p.Cause == Update {
		p.handling = p.handling.with(p.New)
	}
	if p.finished() && p.Cause != Delete {
		return Write{Edits: p.complete(), Completed: true}
	}
	edits := p.spec.edits()
	for _, other := range p.assignments {
		if _, there := p.records[other.slot]; there && !other.known {
			edits.remove(other.slot) // its record is of another cause or process
		}
	}
	edits.record(d.slot, &d.record)
	if p.Cause == Create || p.Cause == Update {
		p.progress(edits, p.handling, p.handled)
	}
	return Write{Edits: edits}
}

// writeDeferred adds the deferred records of other assignments.
func (p *Plan) writeDeferred(edits Edits, written *assignment) {
	for i := range p.assignments {
		if d := &p.assignments[i]; d.deferred && d != written && !p.finished() {
			edits.record(d.slot, &d.record)
		}
	}
}

func (p *Plan) finished() bool {
	for _, d := range p.assignments {
		if !d.record.finished() {
			return false
		}
	}
	return true
}

// complete returns the edits at the end of a cycle.
func (p *Plan) complete() Edits {
	edits := p.removeProgress()
	if p.Cause == Create || p.Cause == Update {
		handled, left := p.handling.end(p.New)
		edits.progress(p.slot(handledName), encode(handled))
		p.progress(edits, left, handled)
	}
	return edits
}

// removeProgress returns edits that remove the progress of a cycle.
func (p *Plan) removeProgress() Edits {
	edits := p.spec.edits()
	for slot := range p.records {
		edits.remove(slot)
	}
	p.progress(edits, handling{}, p.handled)
	return edits
}

// progress writes the handling beside a handled state, if it differs from the stored one.
func (p *Plan) progress(edits Edits, h handling, handled map[string]any) {
	slot := p.slot(handlingName)
	text, there := p.spec.progress(p.object, handlingName)
	switch encoded := h.encode(handled); {
	case h.empty() && there:
		edits.remove(slot)
	case !h.empty() && encoded != text:
		edits.progress(slot, encoded)
	default:
		edits.unchanged(slot)
	}
}

func (p *Plan) slot(name string) string { return p.spec.slot(name, p.object) }

// stamp returns a time in the precision of records: kopf's microseconds.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
