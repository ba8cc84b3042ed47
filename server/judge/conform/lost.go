package conform

import (
	"fmt"
	"maps"
	"slices"

	"github.com/keepwatch/keepwatch"
)

// A server whose storage was restored from a backup does not have all acknowledged writes any more. Which events its
// watchers had to receive is not known then: revisions have two meanings, and the one of the backup is unknown.
// The watchers have to arrive at the server's state all the same.

// judgeLost judges a storm in which the server has lost acknowledged writes.
func (st *storm) judgeLost(end settled) map[string]outcome {
	result := map[string]outcome{}
	for _, r := range stormRules {
		result[r.ID] = notOffered("the server has lost acknowledged writes, so it is not known which events it had to send")
	}
	result[durable.ID] = keptUnless(end.lost)
	result["storm.state"] = keptUnless(end.stale)
	result["storm.converges"] = keptUnless(end.late)
	result[disturbed.ID] = st.afterDisturbance(slices.Concat(end.late, end.stale))
	st.options.log("%s: %d acknowledged writes are lost", st.title, len(end.lost))
	return result
}

// difference returns how the watcher's state differs from a list, for one object.
func (w *watcher) difference(l *listed) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flush()
	want := map[keepwatch.Key]*object{}
	for _, o := range l.items {
		if w.matches(o) {
			want[o.key] = o
		}
	}
	keys := maps.Clone(want)
	maps.Copy(keys, w.state)
	for _, key := range slices.SortedFunc(maps.Keys(keys), keepwatch.Key.Compare) {
		required, received := want[key], w.state[key]
		if required == nil || received == nil || required.uid != received.uid || required.revision != received.revision {
			return fmt.Sprintf("required: %v, in the list at %d, for %v; received: %v", required, l.revision, w.view, received)
		}
	}
	return ""
}
