package check_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// world is a history that is read by replaying it: the simple twin of a timeline.
type world struct {
	history check.History
	filter  check.Filter
}

type view map[keepwatch.Key]keepwatch.Object

// replay calls see for every write of an epoch up to r with what was there before.
func (w world) replay(epoch int, r keepwatch.Revision, see func(write check.Write, before keepwatch.Object)) {
	state := view{}
	var writes []check.Write
	for _, e := range w.history.Epochs[:epoch+1] {
		writes = slices.DeleteFunc(slices.Clone(writes), func(w check.Write) bool { return w.Revision > e.Base })
		writes = append(writes, e.Writes...)
	}
	for _, x := range writes {
		if x.Revision > r {
			return
		}
		see(x, state[x.Key])
		if state[x.Key] = x.Object; x.Object == nil {
			delete(state, x.Key)
		}
	}
}

func (w world) visible(o keepwatch.Object) bool { return o != nil && (w.filter == nil || w.filter(o)) }

// at returns σS(r).
func (w world) at(epoch int, r keepwatch.Revision) view {
	state := view{}
	w.replay(epoch, r, func(x check.Write, _ keepwatch.Object) {
		if delete(state, x.Key); w.visible(x.Object) {
			state[x.Key] = x.Object
		}
	})
	return state
}

// between returns σ(H) on (from, to].
func (w world) between(epoch int, from, to keepwatch.Revision) []keepwatch.Change {
	var all []keepwatch.Change
	w.replay(epoch, to, func(x check.Write, before keepwatch.Object) {
		if x.Revision > from {
			all = append(all, w.change(x.Revision, before, x.Object)...)
		}
	})
	return all
}

func (w world) change(at keepwatch.Revision, before, after keepwatch.Object) []keepwatch.Change {
	var all []keepwatch.Change
	if w.visible(before) && w.visible(after) && before.UID() == after.UID() {
		return append(all, keepwatch.Change{Type: keepwatch.Modified, Revision: at, Object: after, Prior: before})
	}
	if w.visible(before) {
		all = append(all, keepwatch.Change{Type: keepwatch.Deleted, Revision: at, Object: before, Prior: before})
	}
	if w.visible(after) {
		all = append(all, keepwatch.Change{Type: keepwatch.Added, Revision: after.Revision(), Object: after})
	}
	return all
}

// difference returns the changes that turn one view into another at r.
func (w world) difference(a, b view, r keepwatch.Revision) []keepwatch.Change {
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	var all []keepwatch.Change
	for _, key := range slices.SortedFunc(maps.Keys(keys), keepwatch.Key.Compare) {
		switch before, after := a[key], b[key]; {
		case before != nil && after != nil && *before.(*object) == *after.(*object):
		case before == nil || after == nil || before.UID() != after.UID():
			all = append(all, w.change(r, before, after)...)
		default:
			all = append(all, keepwatch.Change{Type: keepwatch.Modified, Revision: after.Revision(), Object: after,
				Prior: before})
		}
	}
	return all
}

func drawWorld(t *rapid.T, epochs int) world {
	w := world{history: history()}
	if rapid.Bool().Draw(t, "filtered") {
		w.filter = red
	}
	created := 0
	for i := range epochs {
		e := check.Epoch{}
		if i > 0 {
			e.Base = revision(t, "base", 1, last(w.history.Epochs[i-1]))
		}
		w.history.Epochs = append(w.history.Epochs, e)
		state := world{history: w.history}.at(i, e.Base)
		at := e.Base
		for n := range rapid.IntRange(2, 12).Draw(t, "writes") {
			if at += keepwatch.Revision(rapid.SampledFrom([]int{0, 1, 1, 1, 2}).Draw(t, "step")); at == e.Base {
				at++
			}
			key := keepwatch.Key{Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")}
			before := state[key]
			if n > 0 && slices.ContainsFunc(e.Writes, func(w check.Write) bool { return w.Key == key && w.Revision == at }) {
				at++
			}
			x := check.Write{Revision: at, Key: key}
			if before == nil || rapid.IntRange(0, 2).Draw(t, "delete") > 0 {
				o := &object{name: key.Name, revision: at, color: rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "color")}
				if o.uid = keepwatch.UID(fmt.Sprint(created)); before != nil && rapid.IntRange(0, 5).Draw(t, "reborn") > 0 {
					o.uid = before.UID()
				}
				created++
				x.Object = o
				state[key] = o
			} else {
				delete(state, key)
			}
			e.Writes = append(e.Writes, x)
		}
		w.history.Epochs[i] = e
	}
	return w
}

func last(e check.Epoch) keepwatch.Revision { return e.Writes[len(e.Writes)-1].Revision }

func revision(t *rapid.T, label string, from, to keepwatch.Revision) keepwatch.Revision {
	return keepwatch.Revision(rapid.Uint64Range(uint64(from), uint64(to)).Draw(t, label))
}

// alsoAt reports whether a consumer at a revision of an epoch may reach the revision to
// without an event, in another epoch than except.
func (w world) alsoAt(was int, at keepwatch.Revision, except int, to keepwatch.Revision) bool {
	for e := was; e < len(w.history.Epochs); e++ {
		if e > was && at > w.history.Epochs[e].Base {
			return false // the rewind is an event
		}
		if e != except && at <= to && to <= last(w.history.Epochs[e]) && len(w.between(e, at, to)) == 0 {
			return true
		}
	}
	return false
}

// drawTranscript returns a random transcript without a violation.
func drawTranscript(t *rapid.T, w world) check.Transcript {
	var tr check.Transcript
	type position struct {
		epoch int
		at    keepwatch.Revision
	}
	current := position{}
	visited := []position{current}
	add := func(r check.Record, to position) {
		tr.Records = append(tr.Records, r)
		current = to
		visited = append(visited, current)
	}
	for range rapid.IntRange(1, 8).Draw(t, "records") {
		newest := last(w.history.Epochs[current.epoch])
		to := position{current.epoch, revision(t, "to", current.at, newest)}
		switch kind := rapid.SampledFrom([]string{"batch", "batch", "batch", "gap", "epoch", "resume", "show"}).Draw(t,
			"kind"); {
		case kind == "epoch" && current.epoch+1 < len(w.history.Epochs):
			base := w.history.Epochs[current.epoch+1].Base
			if current.at <= base {
				current.epoch++ // without an event
				continue
			}
			to = position{current.epoch + 1, revision(t, "back", base, last(w.history.Epochs[current.epoch+1]))}
			add(check.Received{Delivery: keepwatch.Gap{From: current.at, To: to.at, Reason: keepwatch.GapRewind,
				Changes: w.difference(w.at(current.epoch, current.at), w.at(to.epoch, to.at), to.at)}}, to)
		case current.at == 0 || kind == "gap" && to.at > current.at:
			to.at = max(to.at, 1)
			add(check.Received{Delivery: keepwatch.Gap{From: current.at, To: to.at, Reason: keepwatch.GapExpired,
				Changes: w.difference(w.at(current.epoch, current.at), w.at(to.epoch, to.at), to.at)}}, to)
		case kind == "resume":
			i := rapid.IntRange(0, len(visited)-1).Draw(t, "mark")
			current = visited[i]
			if slices.ContainsFunc(visited, func(p position) bool {
				return p != current && w.alsoAt(p.epoch, p.at, current.epoch,
					current.at)
			}) {
				return tr // the revision alone does not identify the position
			}
			visited = visited[:i+1]
			tr.Records = append(tr.Records, check.Resumed{Cursor: current.at})
		case kind == "show":
			tr.Records = append(tr.Records, check.Shown{Revision: current.at,
				Objects: slices.Collect(maps.Values(w.at(current.epoch, current.at)))})
		default:
			add(check.Received{Delivery: keepwatch.Batch{From: current.at, To: to.at,
				Changes: w.between(current.epoch, current.at, to.at)}}, to)
		}
	}
	return tr
}

// TestCorrectTranscriptsAreAccepted checks that a transcript made from the definitions has
// no violation.
func TestCorrectTranscriptsAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, rapid.IntRange(1, 3).Draw(t, "epochs"))
		tr := drawTranscript(t, w)
		for _, v := range check.Judge(w.history, w.filter, tr) {
			t.Errorf("%v", v)
		}
	})
}

// TestEveryMutationIsCaught checks that Judge reports a transcript in which one change was
// dropped, repeated, swapped with the next, given another revision or state, or moved to
// the next delivery.
func TestEveryMutationIsCaught(t *testing.T) {
	caught := map[check.Promise]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 1)
		tr := drawTranscript(t, w)
		if mutate(t, w, tr.Records) {
			violations := check.Judge(w.history, w.filter, tr)
			if len(violations) == 0 {
				t.Fatalf("not caught: %v", tr.Records)
			}
			caught[violations[0].Promise]++
		}
	})
	t.Logf("first caught by: %v", caught)
}

// mutate changes one change of one delivery, and reports whether the transcript differs
// from a correct one.
func mutate(t *rapid.T, w world, records []check.Record) bool {
	var positions [][2]int
	for i, r := range records {
		if received, ok := r.(check.Received); ok {
			for k := range changesOf(received.Delivery) {
				positions = append(positions, [2]int{i, k})
			}
		}
	}
	if len(positions) == 0 {
		return false
	}
	p := rapid.SampledFrom(positions).Draw(t, "place")
	i, k := p[0], p[1]
	d := records[i].(check.Received).Delivery
	all := slices.Clone(changesOf(d))
	_, isGap := d.(keepwatch.Gap)
	c := all[k]
	switch kind := rapid.SampledFrom([]string{"drop", "repeat", "swap", "time", "state", "move"}).Draw(t,
		"mutation"); kind {
	case "drop":
		all = slices.Delete(all, k, k+1)
	case "repeat":
		all = slices.Insert(all, rapid.IntRange(k, len(all)).Draw(t, "again"), c)
	case "swap":
		if k+1 == len(all) || isGap && all[k+1].Object.Key() != c.Object.Key() {
			return false // a gap's order says nothing between keys
		}
		all[k], all[k+1] = all[k+1], all[k]
	case "time":
		all[k].Revision += keepwatch.Revision(rapid.SampledFrom([]int{-1, 1}).Draw(t, "by"))
		if isGap && c.Type == keepwatch.Deleted && all[k].Revision < c.Revision {
			return false // the time of a deletion in a gap is not always known
		}
	case "state":
		o := *c.Object.(*object)
		o.color += "ish"
		all[k].Object = &o
	case "move":
		if i+1 == len(records) {
			return false
		}
		next, ok := records[i+1].(check.Received)
		if !ok {
			return false
		}
		all = slices.Delete(all, k, k+1)
		next.Delivery = withChanges(next.Delivery, slices.Insert(slices.Clone(changesOf(next.Delivery)), 0, c))
		records[i+1] = next
	}
	records[i] = check.Received{Delivery: withChanges(d, all)}
	return true
}

func changesOf(d keepwatch.Delivery) []keepwatch.Change {
	switch d := d.(type) {
	case keepwatch.Batch:
		return d.Changes
	case keepwatch.Gap:
		return d.Changes
	}
	return nil
}

func withChanges(d keepwatch.Delivery, changes []keepwatch.Change) keepwatch.Delivery {
	switch d := d.(type) {
	case keepwatch.Batch:
		d.Changes = changes
		return d
	case keepwatch.Gap:
		d.Changes = changes
		return d
	}
	return nil
}
