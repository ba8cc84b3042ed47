package sinktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// thinView is one state of a database, with all states of each resource, also as texts.
type thinView struct {
	*history.View
	streams []sink.Status
	states  map[string][]sink.State
	texts   map[string][]string
}

// textOf returns all of a state but its end.
func textOf(s sink.State) string {
	return fmt.Sprint(s.Key, s.UID, s.From, s.SeenFrom.UnixMilli(), s.Deleted, string(s.Object))
}

func (r *thinning) view(database history.Database, read func(v thinView)) {
	r.t.Helper()
	ctx := r.t.Context()
	err := history.New(database, history.Options{}).View(ctx, func(v *history.View) error {
		all := thinView{View: v, streams: v.Streams(), states: map[string][]sink.State{}, texts: map[string][]string{}}
		for _, s := range all.streams {
			states, err := v.States(ctx, history.Objects{Resource: s.ID.Resource})
			if err != nil {
				return err
			}
			all.states[s.ID.Resource] = states
			for _, state := range states {
				all.texts[s.ID.Resource] = append(all.texts[s.ID.Resource], textOf(state))
			}
		}
		read(all)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// at returns the states that are valid at a point.
func (v thinView) at(resource string, at sink.Point) string {
	var all []string
	for i, s := range v.states[resource] {
		if !at.Before(s.From) && (s.To == nil || at.Before(*s.To)) {
			all = append(all, v.texts[resource][i])
		}
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

// check compares the databases. In the end nothing is left to be thinned out.
func (r *thinning) check(end bool) {
	r.t.Helper()
	r.view(r.CompletePast, func(complete thinView) {
		r.view(r.Past, func(thinned thinView) {
			doomed := r.doomed(complete)
			r.checkStates(complete, thinned, doomed, end)
			r.checkPoints(complete, thinned, doomed, end)
			r.checkTimes(complete, thinned)
		})
	})
}

// borders returns the borders of a tier of what is old enough, of which a window begins at each but the last.
func (r *thinning) borders(v thinView, of sink.Thinning) (all []time.Time) {
	for b := v.streams[0].FirstSeen.Truncate(of.Interval); !b.After(r.now.Add(-of.Age)); b = b.Add(of.Interval) {
		all = append(all, b)
	}
	return all
}

// known returns the borders that every tier has left: of a finer one those behind the last border of a coarser one.
func (r *thinning) known(v thinView) (all []time.Time) {
	for _, of := range slices.Backward(Thinned[:r.Tiers]) {
		for _, b := range r.borders(v, of) {
			if len(all) == 0 || b.After(all[len(all)-1]) {
				all = append(all, b)
			}
		}
	}
	return all
}

// doomed returns the states that the whole history has more than the borders of each tier, by stream and window.
func (r *thinning) doomed(v thinView) map[string][][]sink.State {
	all := map[string][][]sink.State{}
	for _, of := range Thinned[:r.Tiers] {
		r.addDoomed(v, r.borders(v, of), all)
	}
	return all
}

// addDoomed adds the states that the whole history has more than some borders.
func (r *thinning) addDoomed(v thinView, borders []time.Time, all map[string][][]sink.State) {
	pointAt := func(s sink.Status, b time.Time) (at sink.Point) {
		for _, other := range v.streams {
			if other.Line != s.Line {
				continue
			}
			for _, state := range v.states[other.ID.Resource] {
				if !state.SeenFrom.After(b) && at.Before(state.From) {
					at = state.From
				}
				if state.To != nil && !state.SeenTo.After(b) && at.Before(*state.To) {
					at = *state.To
				}
			}
		}
		return at
	}
	for _, s := range v.streams {
		for i := range max(0, len(borders)-1) {
			from, to := borders[i], borders[i+1]
			start, last := pointAt(s, from), pointAt(s, to)
			if slices.ContainsFunc(v.Gaps(s), func(g sink.StoredGap) bool {
				return !g.Began.After(to) && (g.Ended.IsZero() || !g.Ended.Before(from))
			}) {
				continue
			}
			var window []sink.State
			for _, state := range v.states[s.ID.Resource] {
				if state.To != nil && !state.Deleted && state.From.Epoch == state.To.Epoch && state.SeenFrom.After(from) &&
					!state.SeenTo.After(to) &&
					s.First.Before(state.From) && start.Before(state.From) && !last.Before(*state.To) {
					window = append(window, state)
				}
			}
			if window != nil {
				all[s.ID.Resource] = append(all[s.ID.Resource], window)
			}
		}
	}
}

// checkStates checks which states were deleted, and that those before them end where these ended.
func (r *thinning) checkStates(complete, thinned thinView, doomed map[string][][]sink.State, end bool) {
	r.t.Helper()
	gone := 0
	for resource, states := range complete.states {
		isDoomed := map[int64]bool{}
		for _, window := range doomed[resource] {
			for _, s := range window {
				isDoomed[s.ID] = true
			}
		}
		type line struct {
			text string
			to   *sink.Point
		}
		want := make([]line, 0, len(states)) // pointers to its elements stay
		last := map[keepwatch.Key]*line{}
		for _, s := range states {
			if p := last[s.Key]; isDoomed[s.ID] {
				if p != nil && p.to != nil && *p.to == s.From {
					p.to = s.To
				}
				continue
			}
			want = append(want, line{textOf(s), s.To})
			last[s.Key] = nil
			if !s.Deleted {
				last[s.Key] = &want[len(want)-1]
			}
		}
		var wanted, got []string
		for _, l := range want {
			wanted = append(wanted, fmt.Sprint(l.text, l.to))
		}
		for _, s := range thinned.states[resource] {
			got = append(got, fmt.Sprint(textOf(s), s.To))
		}
		gone += len(states) - len(thinned.states[resource])
		if end && !slices.Equal(got, wanted) {
			i := 0
			for i < min(len(got), len(wanted)) && got[i] == wanted[i] {
				i++
			}
			r.t.Errorf("%s has %d states, and must have %d; from the first difference on:\n%.300q\n%.300q", resource, len(got),
				len(wanted),
				got[i:], wanted[i:])
		}
	}
	if gone != r.Deleted() {
		r.t.Errorf("%d states are gone, and %d were reported", gone, r.Deleted())
	}
}

// checkPoints checks each revision, or some: what is known is as in the complete history, and no more is refused than
// the range of what was deleted in one window.
func (r *thinning) checkPoints(complete, thinned thinView, doomed map[string][][]sink.State, all bool) {
	r.t.Helper()
	ctx := r.t.Context()
	refused := 0
	for i, s := range complete.streams {
		of := thinned.streams[i]
		if of.First != s.First || of.Progress != s.Progress {
			r.t.Fatalf("%s: %+v, want %+v", s.ID.Resource, of, s)
		}
		for epoch := 0; epoch <= s.Progress.Epoch; epoch++ {
			for revision := keepwatch.Revision(1); revision <= r.etcds[s.Line].most(s); revision++ {
				if !all && r.random.IntN(10) > 0 {
					continue
				}
				at := sink.Point{Epoch: epoch, Revision: revision}
				err, wanted := thinned.Check(ctx, of, at), complete.Check(ctx, s, at)
				unknown, ok := errors.AsType[*history.Unknown](err)
				switch {
				case err == nil && wanted == nil:
					if got, want := thinned.at(s.ID.Resource, at), complete.at(s.ID.Resource, at); got != want {
						r.t.Fatalf("%s at %v:\n%s, want\n%s", s.ID.Resource, at, got, want)
					}
				case wanted != nil:
					if fmt.Sprint(err) != fmt.Sprint(wanted) {
						r.t.Fatalf("%s at %v: %v, want %v", s.ID.Resource, at, err, wanted)
					}
				case !ok || unknown.Gap == nil || unknown.Gap.Reason != sink.GapThinned || !within(doomed[s.ID.Resource], at):
					r.t.Fatalf("%s at %v is refused: %v", s.ID.Resource, at, err)
				default:
					refused++
					for _, near := range []*history.Known{unknown.Earlier, unknown.Later} {
						if err := thinned.Check(ctx, of, near.Point); err != nil {
							r.t.Fatalf("%s at %v: %v is named: %v", s.ID.Resource, at, near, err)
						}
					}
				}
			}
		}
	}
	r.t.Logf("%d states are deleted, %d moments are refused", r.Deleted(), refused)
}

// most returns a revision that no stream of an etcd has exceeded.
func (e *thinEtcd) most(s sink.Status) keepwatch.Revision {
	return max(e.revision, s.Progress.Cursor) + 200
}

// within reports whether a point is in the range of the states of a window.
func within(windows [][]sink.State, at sink.Point) bool {
	return slices.ContainsFunc(windows, func(window []sink.State) bool {
		first := slices.MinFunc(window, func(a, b sink.State) int { return comparePoints(a.From, b.From) })
		last := slices.MaxFunc(window, func(a, b sink.State) int { return comparePoints(*a.To, *b.To) })
		return !at.Before(first.From) && at.Before(*last.To)
	})
}

func comparePoints(a, b sink.Point) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Revision, b.Revision))
}

// checkTimes checks each border, random times, and those of some states, of one stream, of those of an etcd and of all.
func (r *thinning) checkTimes(complete, thinned thinView) {
	r.t.Helper()
	var first time.Time
	for _, s := range complete.streams {
		if s.FirstSeen.After(first) {
			first = s.FirstSeen
		}
	}
	times := r.known(complete)
	borders := len(times)
	for range 60 {
		times = append(times, first.Add(time.Duration(r.random.Int64N(int64(r.now.Sub(first)))).Truncate(time.Millisecond)))
	}
	for _, s := range complete.streams {
		states := complete.states[s.ID.Resource]
		for range 40 {
			state := states[r.random.IntN(len(states))]
			times = append(times, state.SeenFrom)
			if state.To != nil {
				times = append(times, state.SeenTo)
			}
		}
	}
	for i, at := range times {
		if !at.After(first) {
			continue
		}
		for _, some := range [][]int{{0}, {1}, {2}, {3}, {0, 1, 2, 3}} {
			got, err := thinned.statesAt(r.t.Context(), at, some)
			want, wanted := complete.statesAt(r.t.Context(), at, some)
			switch {
			case err != nil && wanted == nil && i < borders:
				r.t.Fatalf("the border %v of %v is refused: %v", at, some, err)
			case err == nil && wanted != nil:
				r.t.Fatalf("%v of %v is known, and was refused: %v", at, some, wanted)
			case err == nil && got != want:
				r.t.Fatalf("%v of %v:\n%s, want\n%s", at, some, got, want)
			}
		}
	}
}

// statesAt returns the states of some streams at a time.
func (v thinView) statesAt(ctx context.Context, at time.Time, some []int) (string, error) {
	var streams []sink.Status
	for _, i := range some {
		streams = append(streams, v.streams[i])
	}
	points, err := v.Points(ctx, history.Moment{Time: at}, false, streams...)
	if err != nil {
		return "", err
	}
	text := ""
	for _, s := range streams {
		text += v.at(s.ID.Resource, points.Of(s))
	}
	return text, nil
}
