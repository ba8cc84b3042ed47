package transfer

import (
	"maps"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Status is the state and the counts of a transfer at one moment.
type Status struct {
	Resources []ResourceStatus
	// Standby is true while another process writes to the sink, and this one waits for its end.
	Standby bool
	// Changing is true from a Change until the sink is opened with the resources of it.
	Changing bool
	// Cuts has the newest cut of each line that has one now.
	Cuts map[int]sink.Cut
	// Batches counts the batches that were committed, Retries the errors of the sink after which another attempt
	// followed, without the waits of a standby, and DeadLetters the refusals of events that it does not repeat.
	Batches, Retries, DeadLetters uint64
	// Expired counts the states that the sink has deleted by its options.
	Expired map[sink.ExpiryReason]uint64
	// Excess is by how many bytes the current states alone were more than the sink may have, when it last deleted
	// states by its size.
	Excess int64
	// Now is the time of a batch now, if no earlier one is newer: see [Clock].
	Now time.Time
}

// ResourceStatus is the state of one resource. Its counts are those of this process.
type ResourceStatus struct {
	sink.Stream
	Progress sink.Progress
	Objects  uint64
	// Written is the time of the last batch with a piece of the resource, zero if there was none.
	Written time.Time
	Events  map[keepwatch.ChangeType]uint64
	Bytes   uint64 // of the objects that were stored
	Gaps    map[keepwatch.GapReason]uint64
	// Reflector is the progress of the resource's reflector. Its State is empty until the sink is open.
	Reflector reflector.Progress

	reflector *reflector.Reflector
	confirmed bool // the stream has sent a Synced since the sink was opened
}

// newStatus returns the status of resources. Those that were among the former ones have their counts.
func newStatus(resources []Resource, former Status) Status {
	s := former
	s.Cuts, s.Resources, s.Changing = map[int]sink.Cut{}, nil, false
	if s.Expired == nil {
		s.Expired = map[sink.ExpiryReason]uint64{}
	}
	for _, r := range resources {
		of := ResourceStatus{Events: map[keepwatch.ChangeType]uint64{}, Gaps: map[keepwatch.GapReason]uint64{}}
		for _, f := range former.Resources {
			if f.ID == r.ID {
				of = f
			}
		}
		of.Stream, of.confirmed = r.Stream, false
		s.Resources = append(s.Resources, of)
	}
	return s
}

// Complete reports whether the line of each resource has a cut, and no other resources are about to be added or ended.
func (s Status) Complete() bool {
	if s.Changing {
		return false
	}
	for _, r := range s.Resources {
		if _, ok := s.Cuts[r.Line]; !ok {
			return false
		}
	}
	return true
}

// Newest returns the time of the newest batch, also of an earlier process, zero if there is none. The next batches have
// it until the clock has reached it, because their times never go back.
func (s Status) Newest() (newest time.Time) {
	for _, r := range s.Resources {
		if r.Written.After(newest) {
			newest = r.Written
		}
	}
	return newest
}

// Behind returns by how much the clock is behind the newest batch.
func (s Status) Behind() time.Duration { return max(0, s.Newest().Sub(s.Now)) }

// Status returns the current status. It is safe for concurrent use.
func (t *Transfer) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Now = t.options.Clock.Now()
	s.Cuts, s.Expired = maps.Clone(s.Cuts), maps.Clone(s.Expired)
	s.Resources = make([]ResourceStatus, len(t.status.Resources))
	for i, r := range t.status.Resources {
		r.Events, r.Gaps = maps.Clone(r.Events), maps.Clone(r.Gaps)
		if r.reflector != nil {
			r.Reflector = r.reflector.Progress()
		}
		s.Resources[i] = r
	}
	return s
}

// confirmEvery is how long a resource may be without a confirmation of its revision until it is
// stale: servers confirm it by a bookmark about once a minute.
const confirmEvery = 75 * time.Second

// Stale reports whether the source should be asked to confirm the revision of a resource: its line has
// no cut, or has other resources that may wait for it, and it was not confirmed lately. It is safe for concurrent use.
func (t *Transfer) Stale(id stream.Identity) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.status.Resources, func(r ResourceStatus) bool { return r.ID == id })
	if i < 0 {
		return false
	}
	r := t.status.Resources[i]
	_, complete := t.status.Cuts[r.Line]
	if !complete || r.reflector == nil {
		return true
	}
	shared := slices.ContainsFunc(t.status.Resources, func(o ResourceStatus) bool {
		return o.Line == r.Line &&
			o.ID != id
	})
	return shared && time.Since(r.reflector.Progress().LastConfirmed) > confirmEvery
}

// begin sets the status to what the sink has stored. A line has a cut only after the source has
// confirmed each stream: the source may have been changed while no process followed it.
func (t *Transfer) begin(stored []sink.Stored) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.Standby = false
	clear(t.status.Cuts)
	for i, s := range stored {
		r := &t.status.Resources[i]
		r.Progress, r.Objects, r.Written, r.confirmed = s.Progress, s.Count(), s.Time, false
	}
}

// entered sets the reflector of a resource.
func (t *Transfer) entered(i int, f *reflector.Reflector) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.Resources[i].reflector = f
}

// committed counts a batch, and reports it and the cuts that changed with it.
func (t *Transfer) committed(batch sink.Batch) {
	changed := t.count(batch)
	t.notify.Lock()
	defer t.notify.Unlock()
	if t.options.Committed != nil {
		t.options.Committed(batch)
	}
	if t.options.Cut != nil {
		for line, cut := range changed {
			t.options.Cut(line, cut)
		}
	}
}

// count counts a batch, and returns the cuts that changed with it.
func (t *Transfer) count(batch sink.Batch) map[int]sink.Cut {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.Batches++
	for _, p := range batch.Pieces {
		r := &t.status.Resources[p.Stream]
		r.Progress, r.Objects, r.Written = p.After, p.Count, batch.Time
		for _, m := range p.Messages {
			r.count(m)
		}
	}
	before := t.status.Cuts
	t.status.Cuts = t.cuts()
	changed := map[int]sink.Cut{}
	for line, cut := range t.status.Cuts {
		if old, ok := before[line]; !ok || old != cut {
			changed[line] = cut
		}
	}
	return changed
}

// cuts returns the cut of each line of which every stream was confirmed.
func (t *Transfer) cuts() map[int]sink.Cut {
	lines, unconfirmed := map[int][]sink.Progress{}, map[int]bool{}
	for _, r := range t.status.Resources {
		lines[r.Line] = append(lines[r.Line], r.Progress)
		unconfirmed[r.Line] = unconfirmed[r.Line] || !r.confirmed
	}
	cuts := map[int]sink.Cut{}
	for line, progress := range lines {
		if cut, ok := sink.CutOf(progress); ok && !unconfirmed[line] {
			cuts[line] = cut
		}
	}
	return cuts
}

func (r *ResourceStatus) count(m stream.Message) {
	switch m := m.(type) {
	case stream.Event:
		r.Events[m.Type]++
		if m.Type != keepwatch.Deleted {
			r.Bytes += uint64(len(m.Object.JSON()))
		}
	case stream.Gap:
		r.Gaps[m.Reason]++
	case stream.Synced:
		r.confirmed = true
	}
}
