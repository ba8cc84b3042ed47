package etcd

import (
	"fmt"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// The parts of a batch are contiguous, split no revision, and end at the given revision.
func TestSplitBatch(t *testing.T) {
	change := func(r keepwatch.Revision) keepwatch.Change { return keepwatch.Change{Revision: r} }
	of := func(from, to keepwatch.Revision, perRevision int, revisions ...keepwatch.Revision) keepwatch.Batch {
		b := keepwatch.Batch{From: from, To: to}
		for _, r := range revisions {
			for range perRevision {
				b.Changes = append(b.Changes, change(r))
			}
		}
		return b
	}
	for name, c := range map[string]struct {
		batch keepwatch.Batch
		end   keepwatch.Revision
		want  string
	}{
		"nothing":            {of(5, 5, 0), 9, "(5 5] 0"},
		"progress":           {of(5, 8, 0), 9, "(5 8] 0"},
		"progress above":     {of(5, 12, 0), 9, "(5 9] 0"},
		"small":              {of(5, 8, 2, 6, 7), 9, "(5 8] 4"},
		"above the end":      {of(5, 12, 2, 6, 9, 10), 9, "(5 9] 4"},
		"only above the end": {of(5, 12, 2, 10, 12), 9, "(5 9] 0"},
		"large":              {of(5, 12, 60, 6, 7, 8, 9), 12, "(5 7] 120 (7 12] 120"},
		"one revision":       {of(5, 6, 5000, 6), 9, "(5 6] 5000"},
		"large, above":       {of(5, 12, 60, 6, 7, 8, 9), 8, "(5 7] 120 (7 8] 60"},
		"repeated revisions": {of(5, 7, 60, 4, 5, 6, 7), 9, "(5 5] 120 (5 7] 120"},
	} {
		got := ""
		for p := range splitBatch(c.batch, c.end) {
			got += fmt.Sprintf(" (%d %d] %d", p.From, p.To, len(p.Changes))
		}
		if got != " "+c.want {
			t.Errorf("%s: got%s, want %s", name, got, c.want)
		}
	}
}
