package conform

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// writers is the number of writers of a storm.
const writers = 8

// The rules that package check judges, with the promises that they consist of.
var stormRules = []struct {
	Rule
	promises []check.Promise
}{
	{Rule{"storm.complete", "Every watcher receives each change once, in the order of the revisions, whenever it resumes.",
		efficient}, []check.Promise{check.P1, check.P2, check.P8}},
	{Rule{"storm.deletions", "Every acknowledged deletion is a DELETED event with the last state.", efficient},
		[]check.Promise{check.P6}},
	{Rule{"storm.forward", "No event shows a state that is older than one that was shown, or a deleted object.",
		comparable}, []check.Promise{check.P5, check.P7}},
	{Rule{"storm.bookmarks", "Behind a bookmark no event at or below its revision follows.", bookmarks},
		[]check.Promise{check.P9}},
	{Rule{"storm.edges", "Beginning to match a selector is ADDED, ending to match is DELETED.", watchTypes},
		[]check.Promise{check.P10}},
	{Rule{"storm.state", "The events up to a revision add up to the list at that revision.", efficient},
		[]check.Promise{check.P3, check.P4}},
	{Rule{"storm.converges", "After the last write every watcher receives it.", efficient}, []check.Promise{check.P11,
		check.P13}},
}

// durable is judged by the writers: each knows the state of its names.
var durable = Rule{"storm.durable", "An acknowledged write is not undone, and revisions do not go back.", comparable}

// disturbed is judged if the run has a disturbance.
var disturbed = Rule{"storm.disturbed",
	"After a disturbance watches resume at their revision, or fail with 410 and a list restores them.", efficient}

// storm is writers and watchers of one subject.
type storm struct {
	*subject
	options  Options
	start    keepwatch.Revision
	history  *history
	watchers []*watcher
	writers  []*writer
}

// judgeStorm runs a storm and returns the outcome of each rule.
func judgeStorm(ctx context.Context, s *subject, o Options) (map[string]outcome, error) {
	s.disturbed = new(atomic.Bool)
	l, err := s.mustList(ctx, nil)
	if err != nil {
		return nil, err
	}
	st := &storm{subject: s, options: o, start: l.revision, history: newHistory()}
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	for i := range o.Watchers {
		w := newWatcher(s, st.view(i), l.revision)
		st.watchers = append(st.watchers, w)
		running.Go(func() { w.run(watching) })
	}
	err = st.write(ctx)
	var end settled
	if err == nil {
		end, err = st.settle(ctx)
	}
	stop(errOver)
	running.Wait()
	switch {
	case err != nil:
		return nil, err
	case len(end.lost) > 0:
		return st.judgeLost(end), nil
	}
	// Others write, too: a watcher may have received a bookmark above the last list.
	newest, err := s.mustList(ctx, url.Values{"limit": {"1"}})
	if err != nil {
		return nil, err
	}
	end.newest = newest.revision
	return st.judge(end), nil
}

// settled is the end of a storm.
type settled struct {
	late  []string    // the watchers that do not receive the last write
	shown check.Shown // the last list
	lost  []string    // acknowledged writes that the server does not have any more
	stale []string    // if some are lost: the watchers whose states are not the list

	newest keepwatch.Revision // the newest revision when no watcher receives anything any more
}

// view returns the view of a watcher: half of them have all objects.
func (st *storm) view(i int) view {
	v := view{protobuf: st.protobuf && i%4 >= 2}
	switch i % 8 {
	case 1, 3:
		v.color = "red"
	case 5:
		v.name = st.prefix + (&writer{}).name(0)
	case 7:
		v.color = "green"
	}
	return v
}

// write runs the writers, and the disturbance behind a third of the writes.
func (st *storm) write(ctx context.Context) error {
	var left atomic.Int64
	left.Store(int64(st.options.Writes))
	group, ctx := errgroup.WithContext(ctx)
	for i := range writers {
		w := &writer{
			subject: st.subject, index: i, random: rand.New(rand.NewPCG(st.options.Seed, uint64(i))), history: st.history,
			current: map[string]*object{}, doubts: map[keepwatch.UID]bool{}, left: &left,
		}
		st.writers = append(st.writers, w)
		group.Go(func() error { return w.run(ctx) })
	}
	if st.options.Disturb != nil {
		group.Go(func() error {
			for left.Load() > int64(st.options.Writes)*2/3 {
				if err := sleep(ctx, 10*time.Millisecond); err != nil {
					return err
				}
			}
			st.disturbed.Store(true)
			if err := st.options.Disturb(ctx); err != nil {
				return fmt.Errorf("the disturbance failed: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// settle writes the last states, waits until each watcher has them, and lists the final state.
func (st *storm) settle(ctx context.Context) (end settled, err error) {
	var last []*object
	for _, w := range st.writers {
		if err := w.confirm(ctx); err != nil {
			return end, err
		}
		both, err := w.last(ctx)
		if err != nil {
			return end, err
		}
		last = append(last, both...)
	}
	end.late, err = st.await(ctx, func(w *watcher) string {
		var goal keepwatch.Revision
		for _, o := range last {
			if w.matches(o) {
				goal = max(goal, o.revision)
			}
		}
		return w.missing(goal)
	})
	if err != nil {
		return end, err
	}
	l, err := st.mustList(ctx, nil)
	if err != nil {
		return end, err
	}
	end.shown.Revision = l.revision
	for _, o := range l.items {
		end.shown.Objects = append(end.shown.Objects, o)
	}
	if end.lost = st.history.lost(l.revision); len(end.lost) > 0 {
		end.stale, err = st.await(ctx, func(w *watcher) string { return w.difference(l) })
	}
	return end, err
}

// await waits until no watcher lacks anything, at most for the time waits.convergence, and returns what is lacking
// then.
func (st *storm) await(ctx context.Context, lacks func(*watcher) string) (all []string, err error) {
	deadline := time.Now().Add(st.waits.convergence)
	for _, w := range st.watchers {
		lacking := lacks(w)
		for lacking != "" && w.failed() == nil && time.Now().Before(deadline) {
			if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return nil, err
			}
			lacking = lacks(w)
		}
		if lacking != "" {
			all = append(all, lacking)
		}
	}
	return all, nil
}

// judge compares each transcript with the history.
func (st *storm) judge(end settled) map[string]outcome {
	received := newDeletions()
	for _, w := range st.watchers {
		received.add(w.deletions)
	}
	writes, facts := st.history.writes(received)
	history := check.History{Epochs: []check.Epoch{{Writes: writes, Last: end.newest}}, Content: contentOf}
	result := map[string]outcome{}
	for _, r := range stormRules {
		result[r.ID] = kept
	}
	for _, fact := range facts {
		result["storm.deletions"] = result["storm.deletions"].and(outcome{Broken, []string{fact}})
	}
	for _, fact := range end.late {
		result["storm.converges"] = result["storm.converges"].and(outcome{Broken, []string{fact}})
	}
	resumed, relisted := 0, 0
	for _, w := range st.watchers {
		resumed, relisted = resumed+w.resumed, relisted+w.relisted
		for _, v := range check.Judge(history, w.matches, st.transcript(w)) {
			id := ruleOf(v.Promise)
			result[id] = result[id].and(outcome{Broken, []string{fmt.Sprintf("%v: %v", w.view, v)}})
		}
	}
	// The list at the end is a transcript of its own: a consumer that received nothing else.
	all := check.Transcript{From: end.shown.Revision, Records: []check.Record{end.shown}}
	for _, v := range check.Judge(history, nil, all) {
		result["storm.state"] = result["storm.state"].and(outcome{Broken, []string{"the list at the end: " + v.String()}})
	}
	result[durable.ID] = kept
	result[disturbed.ID] = st.afterDisturbance(end.late)
	st.options.log("%s: %d writes, %d watchers, resumed %d times, listed %d times behind 410", st.title, len(writes),
		len(st.watchers), resumed, relisted)
	return result
}

// afterDisturbance is the outcome of the rule disturbed, for what watchers lack at the end.
func (st *storm) afterDisturbance(lacking []string) outcome {
	if st.options.Disturb == nil {
		return notOffered("no disturbance was given")
	}
	return keptUnless(lacking)
}

// transcript returns what a watcher received. One that failed has not ended on request.
func (st *storm) transcript(w *watcher) check.Transcript {
	t := check.Transcript{From: st.start, Records: w.records}
	if w.failure == nil {
		t.Over = true
	}
	return t
}

// ruleOf returns the rule that a promise belongs to.
func ruleOf(p check.Promise) string {
	for _, r := range stormRules {
		for _, of := range r.promises {
			if of == p {
				return r.ID
			}
		}
	}
	return stormRules[0].ID
}
