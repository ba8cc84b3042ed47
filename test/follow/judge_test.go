package follow

import (
	"testing"

	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/ndjson"
)

func TestInGap(t *testing.T) {
	fold := ndjson.NewFold()
	fold.First, fold.Gaps = 100, []ndjson.Gap{{From: 200, To: 300}}
	for _, c := range []struct {
		created  string
		lastSeen uint64
		want     bool
	}{
		{"50", 99, true}, // before the first state
		{"50", 100, false},
		{"50", 250, false},
		{"150", 160, false}, // outside
		{"201", 299, true},
		{"201", 300, false}, // it existed at the end of the gap
		{"200", 250, false}, // it existed at the beginning
		{"301", 301, false},
	} {
		if got := inGap(fold, load.Record{Created: c.created, Deleted: true, LastSeen: c.lastSeen}); got != c.want {
			t.Errorf("created at %s, last seen at %d: %t", c.created, c.lastSeen, got)
		}
	}
}
