package sinktest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// transcript records the pieces of one stream as a consumer's transcript. A first list and a
// difference are one gap: from the state before to the state at their end.
type transcript struct {
	check.Transcript
	state  map[keepwatch.Key]keepwatch.Object
	before map[keepwatch.Key]keepwatch.Object // a list is incomplete: the state before it
	gap    keepwatch.Gap
}

func newTranscript() *transcript {
	return &transcript{state: map[keepwatch.Key]keepwatch.Object{}}
}

func (t *transcript) add(p sink.Piece) {
	batch := keepwatch.Batch{From: p.Before.Cursor, To: p.After.Cursor}
	if p.Before.Cursor == 0 && t.before == nil {
		t.begin(keepwatch.Gap{Reason: keepwatch.GapExpired})
	}
	for _, m := range p.Messages {
		switch m := m.(type) {
		case stream.Gap:
			if t.before == nil {
				t.begin(keepwatch.Gap{From: m.From})
			}
			t.gap.Reason = m.Reason
		case stream.Event:
			batch.Changes = append(batch.Changes, keepwatch.Change{Type: m.Type, Revision: m.Revision, Object: m.Object})
			if m.Type == keepwatch.Deleted {
				delete(t.state, m.Object.Key())
			} else {
				t.state[m.Object.Key()] = m.Object
			}
		case stream.Synced:
			if t.before != nil {
				t.end(m.Revision)
				return
			}
		}
	}
	if t.before == nil && batch.To > batch.From {
		t.Records = append(t.Records, check.Received{Delivery: batch})
	}
}

func (t *transcript) begin(g keepwatch.Gap) {
	t.gap, t.before = g, maps.Clone(t.state)
}

// end records the difference between the state before the gap and the state now.
func (t *transcript) end(at keepwatch.Revision) {
	t.gap.To = at
	for key, o := range t.before {
		if now, ok := t.state[key]; !ok || now.UID() != o.UID() {
			t.gap.Changes = append(t.gap.Changes, keepwatch.Change{Type: keepwatch.Deleted, Revision: at, Object: o, Prior: o})
		}
	}
	for key, o := range t.state {
		switch prior, ok := t.before[key]; {
		case !ok || prior.UID() != o.UID():
			t.gap.Changes = append(t.gap.Changes, keepwatch.Change{Type: keepwatch.Added, Revision: o.Revision(), Object: o})
		case prior.Revision() != o.Revision():
			t.gap.Changes = append(t.gap.Changes, keepwatch.Change{Type: keepwatch.Modified, Revision: o.Revision(), Object: o,
				Prior: prior})
		}
	}
	// deletions first
	slices.SortStableFunc(t.gap.Changes, func(a, b keepwatch.Change) int { return int(b.Type) - int(a.Type) })
	t.Records = append(t.Records, check.Received{Delivery: t.gap})
	t.gap, t.before = keepwatch.Gap{}, nil
}

// judge returns the violations of the promises in what was committed.
func (t *transcript) judge(h check.History) (problems []string) {
	for _, v := range check.Judge(h, nil, t.Transcript) {
		problems = append(problems, fmt.Sprint(v))
	}
	return problems
}
