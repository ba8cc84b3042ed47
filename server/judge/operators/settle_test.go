package operators

import (
	"testing"
	"time"
)

// An operator that does little has more time than its patience while it lacks a watch, also if it was started again and
// is quiet long enough to have arrived without: a machine may be slow.
func TestPatience(t *testing.T) {
	const patience = time.Minute
	for name, c := range map[string]struct {
		quiet         bool
		watches, does int
		hurry         time.Duration
		want          time.Duration
	}{
		"quiet":                      {quiet: true, watches: 2, want: patience},
		"quiet, in a hurry":          {quiet: true, watches: 2, hurry: time.Second, want: time.Second},
		"not quiet":                  {watches: 2, want: moreTime * patience},
		"without a watch":            {quiet: true, watches: 1, want: moreTime * patience},
		"without a watch, in hurry":  {quiet: true, watches: 1, hurry: time.Second, want: moreTime * patience},
		"without a watch, but busy":  {quiet: true, watches: 1, does: manyActions, want: patience},
		"not quiet and not too busy": {watches: 1, does: manyActions - 1, want: moreTime * patience},
		"busy":                       {watches: 2, does: manyActions, want: patience},
		"busy, in a hurry":           {watches: 2, does: manyActions, hurry: time.Second, want: time.Second},
	} {
		traffic := newTraffic("operator")
		for range c.watches {
			traffic.watches[&openWatch{}] = struct{}{}
		}
		r := &run{options: Options{Patience: patience, hurry: c.hurry}, world: &world{traffic: traffic},
			ref: &reference{watches: []int{2}}}
		traffic.actions = manyActions // before it was given time
		r.giveTime()
		traffic.actions += c.does
		late := func(after time.Duration) bool {
			r.quiet.whole, r.quiet.time = r.began+after, after
			return r.isLate(0, c.quiet)
		}
		if late(c.want) || !late(c.want+1) {
			t.Errorf("%s: it is not late after %v", name, c.want)
		}
	}
}
