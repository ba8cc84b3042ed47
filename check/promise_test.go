package check_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// fullHistory has creates, updates, a color that changes and changes back, a delete, a name
// that is used again, and two writes of one revision.
var fullHistory = history(epoch(0,
	"+ a/1@1 red",
	"+ b/1@2 blue",
	"+ a/1@3 red",
	"+ b/1@4 red",
	"+ a/1@5 blue",
	"- b@6",
	"+ b/2@7 red",
	"+ a/1@8 blue",
	"+ c/1@8 red",
	"- b@10",
))

// judgeCase is a transcript of a history, and the promises that it breaks.
type judgeCase struct {
	name    string
	filter  check.Filter
	records []check.Record
	want    []check.Promise
}

func records(r ...check.Record) []check.Record { return r }

var (
	p1, p2, p3, p4, p5  = check.P1, check.P2, check.P3, check.P4, check.P5
	p6, p7, p8, p9, p10 = check.P6, check.P7, check.P8, check.P9, check.P10
)

func TestEachPromise(t *testing.T) {
	state := gap(0, 4, "+ a/1@3 red", "+ b/1@4 red")
	upTo6 := batch(4, 6, "~ a/1@5 blue", "- b/1@6 red")
	for _, c := range []judgeCase{
		{"all of it", nil, records(state, upTo6, batch(6, 7, "+ b/2@7 red"),
			batch(7, 8, "~ a/1@8 blue", "+ c/1@8 red"), batch(8, 9), batch(9, 10, "- b/2@7 red #10"),
			shown(10, "a/1@8 blue", "c/1@8 red")), nil},
		{"in view of red", red, records(gap(0, 2, "+ a/1@1 red"), batch(2, 4, "~ a/1@3 red", "+ b/1@4 red"),
			batch(4, 6, "- a/1@3 red #5", "- b/1@4 red #6"), batch(6, 10, "+ b/2@7 red", "+ c/1@8 red", "- b/2@10 red"),
			shown(10, "c/1@8 red")), nil},
		{"a gap with a name used again", nil, records(state, gap(4, 9,
			"- b/1@6 red", "+ b/2@7 red", "~ a/1@8 blue", "+ c/1@8 red")), nil},
		{"a gap whose sender cannot evaluate the filter at its start", red, records(gap(0, 2, "+ a/1@1 red"),
			gap(2, 4, "~ a/1@3 red", "~ b/1@4 red"),
			gap(4, 9, "- b/1@6 red", "- a/1@8 blue", "+ b/2@7 red", "+ c/1@8 red")), nil},
		{"a gap that deletes what was not in view", blue, records(gap(0, 3, "+ b/1@2 blue"), batch(3, 4, "- b/1@2 blue #4"),
			gap(4, 6, "- b/1@6 red", "~ a/1@5 blue")), nil},
		{"a restart at a cursor", nil, records(state, upTo6, check.Resumed{Cursor: 4}, upTo6, batch(6, 7, "+ b/2@7 red"),
			check.Resumed{}, state), nil},
		{"a restart where nothing was in view", red, records(gap(0, 8, "+ b/2@7 red", "+ c/1@8 red"),
			check.Resumed{Cursor: 9},
			batch(9, 10, "- b/2@10 red")), nil},

		{"a gap from a cursor that moved outside of the view", red, records(gap(0, 1, "+ a/1@1 red"), gap(1, 4, "~ a/1@3 red",
			"~ b/1@4 red")), nil},

		{"P1 a hole", nil, records(state, upTo6, batch(7, 8, "~ a/1@8 blue", "+ c/1@8 red")), []check.Promise{p1}},
		{"P1 an overlap", nil, records(state, batch(4, 5, "~ a/1@5 blue"), batch(4, 6, "~ a/1@5 blue", "- b/1@6 red")),
			[]check.Promise{p1}},
		{"P1 back", nil, records(state, upTo6, gap(6, 5, "+ b/1@4 red")), []check.Promise{p1}},
		{"P1 a rewind without a restore", nil, records(state, upTo6, rewind(6, 5, "+ b/1@4 red")), []check.Promise{p1}},
		{"P1 a cursor from nowhere", nil, records(state, check.Resumed{Cursor: 5}), []check.Promise{p1}},

		{"P2 lacks a superseded update", nil, records(gap(0, 2, "+ a/1@1 red", "+ b/1@2 blue"), batch(2, 5, "~ b/1@4 red",
			"~ a/1@5 blue")), []check.Promise{p2}},
		{"P2 out of order", nil, records(state, batch(4, 7, "~ a/1@5 blue", "+ b/2@7 red", "- b/1@6 red")),
			[]check.Promise{p2}},
		{"P2 never written", nil, records(state, batch(4, 9, "~ a/1@5 blue", "- b/1@6 red", "+ b/2@7 red", "~ a/1@8 blue",
			"+ c/1@8 red", "+ d/1@9 red")), []check.Promise{p2}},
		{"P2 another type", nil, records(state, batch(4, 6, "+ a/1@5 blue", "- b/1@6 red")), []check.Promise{p2}},
		{"P2 another content", nil, records(state, batch(4, 6, "~ a/1@5 red", "- b/1@6 red")), []check.Promise{p2}},
		{"P2 another time", nil, records(state, batch(4, 5, "~ a/1@5 blue #4")), []check.Promise{p2, p2}},

		{"P3 an added object too many", nil, records(state, gap(4, 6, "~ a/1@5 blue", "- b/1@6 red", "+ b/2@7 red")),
			[]check.Promise{p3}},
		{"P3 lacks an update", nil, records(state, gap(4, 6, "- b/1@6 red")), []check.Promise{p3}},
		{"P3 an intermediate state", nil, records(gap(0, 2, "+ a/1@1 red", "+ b/1@2 blue"), gap(2, 6, "- b/1@4 red #6",
			"~ a/1@3 red")), []check.Promise{p3}},
		{"P3 too far", nil, records(gap(0, 11, "+ a/1@8 blue", "+ c/1@8 red")), []check.Promise{p3}},
		{"P3 without need", nil, records(state, check.Received{Delivery: gap(4, 5, "~ a/1@5 blue").Delivery, HistoryFrom: 3}),
			[]check.Promise{p3}},

		{"P4 another state is shown", nil, records(state, upTo6, shown(6, "a/1@3 red")), []check.Promise{p4}},
		{"P4 more is shown", nil, records(state, upTo6, shown(6, "a/1@5 blue", "b/1@4 red")), []check.Promise{p4}},

		{"P5 an older state", nil, records(state, batch(4, 6, "~ a/1@5 blue", "- b/1@6 red", "~ a/1@3 red")),
			[]check.Promise{p5}},
		{"P5 an older state in a gap", nil, records(state, gap(4, 6, "~ a/1@1 red", "- b/1@6 red")), []check.Promise{p5}},

		{"P6 a delete is lost", nil, records(state, batch(4, 6, "~ a/1@5 blue")), []check.Promise{p6}},
		{"P6 a delete is lost in a gap", nil, records(state, gap(4, 6, "~ a/1@5 blue")), []check.Promise{p6}},
		{"P6 a new UID as an update", nil, records(state, gap(4, 7, "~ a/1@5 blue", "~ b/2@7 red")), []check.Promise{p6}},
		{"P6 another last state", nil, records(state, batch(4, 6, "~ a/1@5 blue", "- b/1@2 blue #6")), []check.Promise{p6}},
		{"P6 another last state in a gap", nil, records(state, gap(4, 6, "~ a/1@5 blue", "- b/1@3 red #6")),
			[]check.Promise{p6}},
		{"P3 an object created and deleted in a gap", red, records(state, gap(4, 10, "- b/1@6 red", "- b/2@10 red",
			"- a/1@8 blue", "+ c/1@8 red")), []check.Promise{p3}},
		{"P6 another time in a gap", nil, records(state, gap(4, 7, "~ a/1@5 blue", "- b/1@4 red #5", "+ b/2@7 red")),
			[]check.Promise{p6}},

		{"P7 a deleted object again", nil, records(state, upTo6, batch(6, 7, "+ b/1@4 red", "+ b/2@7 red")),
			[]check.Promise{p7}},
		{"P7 a deleted object again, in a gap", nil, records(state, upTo6, gap(6, 7, "+ b/1@4 red")), []check.Promise{p7}},
		{"P7 nothing else in a gap", nil, records(state, upTo6, gap(6, 6, "+ b/1@4 red")), []check.Promise{p7}},

		{"P8 half a revision", nil, records(state, upTo6, batch(6, 8, "+ b/2@7 red", "~ a/1@8 blue"),
			batch(8, 8, "+ c/1@8 red")), []check.Promise{p8}},
		{"P8 half a revision, the rest with the next", nil, records(state, upTo6, batch(6, 8, "+ b/2@7 red", "~ a/1@8 blue"),
			batch(8, 10, "+ c/1@8 red", "- b/2@10 red")), []check.Promise{p8}},

		{"P9 ahead of an event", nil, records(state, batch(4, 5)), []check.Promise{p9}},
		{"P9 ahead of the source", nil, records(gap(0, 10, "+ a/1@8 blue", "+ c/1@8 red"), batch(10, 11)),
			[]check.Promise{p9}},
		{"P9 something follows", nil, records(state, upTo6, batch(6, 6), batch(6, 7, "~ a/1@5 blue", "+ b/2@7 red")),
			[]check.Promise{p9}},

		{"P10 leaves as an update", red, records(state, batch(4, 5, "~ a/1@5 blue")), []check.Promise{p10}},
		{"P10 leaves without an event", red, records(state, batch(4, 6, "- b/1@4 red #6")), []check.Promise{p10}},
		{"P10 leaves with the state it has now", red, records(state, batch(4, 5, "- a/1@5 blue")), []check.Promise{p10}},
		{"P10 leaves without an event, in a gap", red, records(state, gap(4, 6, "- b/1@6 red")), []check.Promise{p10}},
		{"P10 enters as an update", red, records(gap(0, 3, "+ a/1@3 red"), batch(3, 4, "~ b/1@4 red")), []check.Promise{p10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, check.Judge(fullHistory, c.filter, check.Transcript{Records: c.records}), c.want)
		})
	}
}

// An object that left the view within a gap and returned may be sent as deleted and added: a consumer that receives the
// first part of the gap must not keep it.
func TestReturnedWithinAGap(t *testing.T) {
	returned := history(epoch(0, "+ a/1@1 red", "+ b/1@2 red", "+ a/1@3 blue", "+ a/1@4 red", "+ b/1@5 red"))
	state := gap(0, 2, "+ a/1@1 red", "+ b/1@2 red")
	for _, c := range []judgeCase{
		{"both", red, records(state, gap(2, 5, "- a/1@1 red #3", "+ a/1@4 red", "~ b/1@5 red"),
			shown(5, "a/1@4 red", "b/1@5 red")), nil},
		{"one", red, records(state, gap(2, 5, "~ a/1@4 red", "~ b/1@5 red"), shown(5, "a/1@4 red", "b/1@5 red")), nil},
		{"the first alone", red, records(state, gap(2, 5, "- a/1@1 red #3", "~ b/1@5 red")), []check.Promise{p3}},
		{"in another order", red, records(state, gap(2, 5, "+ a/1@4 red", "- a/1@1 red #3", "~ b/1@5 red")),
			[]check.Promise{p6}},
		{"one that never left", red, records(state, gap(2, 5, "~ a/1@4 red", "- b/1@2 red #5", "+ b/1@5 red")),
			[]check.Promise{p3}},
		{"before it left", red, records(state, gap(2, 5, "- a/1@1 red #2", "+ a/1@4 red", "~ b/1@5 red")),
			[]check.Promise{p6}},
		{"without a filter", nil, records(state, gap(2, 5, "- a/1@1 red #3", "+ a/1@4 red", "~ b/1@5 red")),
			[]check.Promise{p3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, check.Judge(returned, c.filter, check.Transcript{Records: c.records}), c.want)
		})
	}
}

func expect(t *testing.T, violations []check.Violation, want []check.Promise) {
	t.Helper()
	var got []check.Promise
	for _, v := range violations {
		got = append(got, v.Promise)
	}
	if !slices.Equal(got, want) {
		t.Errorf("violations %v, want %v", got, want)
		for _, v := range violations {
			t.Log(v)
		}
	}
}

// restored is a source that was restored from 5 to 3, and then from 6 to 5.
var restored = history(
	epoch(0, "+ a/1@1 red", "+ b/1@2 red", "+ a/1@3 blue", "- b@4", "+ a/1@5 green"),
	epoch(3, "+ c/1@4 red", "+ a/1@5 black", "+ c/1@6 red"),
	epoch(5, "- c@6"),
)

func TestRewind(t *testing.T) {
	before := gap(0, 5, "+ a/1@5 green")
	after := rewind(5, 4, "~ a/1@3 blue", "+ b/1@2 red", "+ c/1@4 red")
	for _, c := range []judgeCase{
		{"declared", nil, records(before, after, batch(4, 6, "~ a/1@5 black", "~ c/1@6 red"), rewind(6, 6, "- c/1@6 red")),
			nil},
		{"to a revision that two epochs have", nil, records(before, after, batch(4, 5, "~ a/1@5 black"),
			batch(5, 6, "- c/1@6 red")), nil},
		{"never noticed and nothing lost", nil, records(gap(0, 2, "+ a/1@1 red", "+ b/1@2 red"), batch(2, 3, "~ a/1@3 blue"),
			batch(3, 4, "+ c/1@4 red")), nil},
		{"two at once", nil, records(before, rewind(5, 6, "~ a/1@5 black", "+ b/1@2 red")), nil},
		{"a wrong bookmark, and the gap that repairs it", nil, records(gap(0, 2, "+ a/1@1 red", "+ b/1@2 red"), batch(2, 4),
			gap(4, 4, "~ a/1@3 blue", "- b/1@2 red #4"),
			batch(4, 5, "~ a/1@5 green"), rewind(5, 4, "~ a/1@3 blue", "+ b/1@2 red", "+ c/1@4 red")), []check.Promise{p9, p9}},
		{"the epoch is mixed up", nil, records(before, batch(5, 6, "~ c/1@6 red")), []check.Promise{p2, p2}},
		{"an old state remains", nil, records(before, rewind(5, 4, "+ b/1@2 red", "+ c/1@4 red")), []check.Promise{p3}},
		{"another state with the same revision remains", nil, records(before, rewind(5, 5, "+ b/1@2 red", "+ c/1@4 red")),
			[]check.Promise{p3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, check.Judge(restored, c.filter, check.Transcript{Records: c.records}), c.want)
		})
	}
}

// TestResumeAheadOfARestore resumes at a revision that the restored source has not reached:
// the consumer was in the earlier epoch there.
func TestResumeAheadOfARestore(t *testing.T) {
	h := history(epoch(0, "+ a/1@1 red", "+ a/1@3 blue"), epoch(1, "+ b/1@2 red"))
	back := rewind(3, 2, "~ a/1@1 red", "+ b/1@2 red")
	expect(t, check.Judge(h, nil, check.Transcript{
		Records: records(gap(0, 3, "+ a/1@3 blue"), back, check.Resumed{Cursor: 3}, back),
	}), nil)
}

// TestAnEpochExplainsNothingBeforeIt checks that a delivery before a restore is wrong even
// if it fits the epoch after it.
func TestAnEpochExplainsNothingBeforeIt(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	h := history(epoch(0, "+ a/1@1 red", "+ b/1@2 red"), epoch(1, "+ c/1@3 red"))
	h.Epochs[1].Began = noon
	early, late := gap(0, 1, "+ a/1@1 red"), batch(1, 2)
	for at, want := range map[time.Duration][]check.Promise{-time.Second: {p9}, time.Second: nil} {
		early.At, late.At = noon.Add(-time.Minute), noon.Add(at)
		expect(t, check.Judge(h, nil, check.Transcript{Records: records(early, late)}), want)
	}
}

func TestOneMistakeIsReportedOnce(t *testing.T) {
	expect(t, check.Judge(fullHistory, nil, check.Transcript{Records: records(
		gap(0, 4, "+ a/1@3 red", "+ b/1@4 red"),
		batch(4, 6, "~ a/1@5 blue"), // b's delete is lost
		batch(6, 7, "+ b/2@7 red"),
		shown(7, "a/1@5 blue", "b/2@7 red"),
	)}), []check.Promise{p6})
	expect(t, check.Judge(fullHistory, nil, check.Transcript{Records: records(
		gap(0, 4, "+ a/1@3 red", "+ b/1@4 red"),
		batch(4, 5), // a's update is lost
		gap(5, 6, "~ a/1@5 blue", "- b/1@6 red"),
		batch(6, 7, "+ b/2@7 red"),
	)}), []check.Promise{p9})
}

func TestCleanEnd(t *testing.T) {
	state := gap(0, 10, "+ a/1@8 blue", "+ c/1@8 red")
	asked := context.Canceled
	for name, c := range map[string]struct {
		records []check.Record
		over    bool
		want    []check.Promise
	}{
		"asked for":          {records(state, check.Ended{Err: asked, Asked: asked}), true, nil},
		"asked for, wrapped": {records(state, check.Ended{Err: fmt.Errorf("drain: %w", asked), Asked: asked}), true, nil},
		"a failure":          {records(state, check.Ended{Err: keepwatch.Failed(keepwatch.Expired, "too old")}), true, nil},
		"ends and begins anew": {records(state, check.Ended{Err: asked, Asked: asked}, check.Resumed{Cursor: 10},
			check.Ended{Err: asked, Asked: asked}), true, nil},
		"still running": {records(state), false, nil},
		"no end":        {records(state), true, []check.Promise{check.P13}},
		"no reason":     {records(state, check.Ended{}), true, []check.Promise{check.P13}},
		"no type":       {records(state, check.Ended{Err: errors.New("oops")}), true, []check.Promise{check.P13}},
		"not asked for": {records(state, check.Ended{Err: asked}), true, []check.Promise{check.P13}},
		"no such kind": {records(state, check.Ended{Err: keepwatch.Failed(0, "what?")}), true,
			[]check.Promise{check.P13}},
		"two ends": {records(state, check.Ended{Err: asked, Asked: asked}, check.Ended{Err: asked, Asked: asked}),
			true, []check.Promise{check.P13}},
		"more behind the end": {records(check.Ended{Err: asked, Asked: asked}, state), true, []check.Promise{check.P13}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, check.Judge(fullHistory, nil, check.Transcript{Records: c.records, Over: c.over}), c.want)
		})
	}
}

func TestConvergence(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	after := func(d time.Duration, r check.Received) check.Received {
		r.At = noon.Add(d)
		return r
	}
	state := after(-time.Minute, gap(0, 7, "+ a/1@5 blue", "+ b/2@7 red"))
	to8 := batch(7, 8, "~ a/1@8 blue", "+ c/1@8 red")
	end := func(d time.Duration) check.Ended {
		return check.Ended{Err: context.Canceled, Asked: context.Canceled, At: noon.Add(d)}
	}
	for name, c := range map[string]struct {
		filter  check.Filter
		records []check.Record
		want    []check.Promise
	}{
		"in time": {nil, records(state, after(time.Second, to8),
			after(time.Minute, batch(8, 10, "- b/2@7 red #10"))), nil},
		"before the calm": {nil, records(after(-time.Hour, gap(0, 10, "+ a/1@8 blue", "+ c/1@8 red"))), nil},
		"late": {nil, records(state, after(time.Second, to8),
			after(3*time.Minute, batch(8, 10, "- b/2@7 red #10"))), []check.Promise{check.P11}},
		"never":              {nil, records(state, after(time.Second, to8)), []check.Promise{check.P11}},
		"never, to the end":  {nil, records(state, after(time.Second, to8), end(3*time.Minute)), []check.Promise{check.P11}},
		"ended before":       {nil, records(state, after(time.Second, to8), end(time.Minute)), nil},
		"nothing in view":    {blue, records(after(0, gap(0, 8, "+ a/1@8 blue"))), nil},
		"the view is behind": {red, records(after(0, gap(0, 8, "+ b/2@7 red", "+ c/1@8 red"))), []check.Promise{check.P11}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, check.Judge(fullHistory, c.filter, check.Transcript{
				Records: c.records, Calm: &check.Calm{At: noon, Within: 2 * time.Minute},
			}), c.want)
		})
	}
}

func TestFromElsewhere(t *testing.T) {
	expect(t, check.Judge(fullHistory, nil, check.Transcript{From: 4, Records: records(
		batch(4, 6, "~ a/1@5 blue", "- b/1@6 red"), shown(6, "a/1@5 blue"),
	)}), nil)
	expect(t, check.Judge(restored, nil, check.Transcript{From: 4, Epoch: 1, Records: records(
		batch(4, 5, "~ a/1@5 black"), batch(5, 6, "- c/1@6 red"),
	)}), nil)
}

func TestViolationNamesRecordAndFacts(t *testing.T) {
	v := check.Judge(fullHistory, nil, check.Transcript{Records: records(
		gap(0, 4, "+ a/1@3 red", "+ b/1@4 red"), batch(4, 6, "~ a/1@5 blue", "- b/1@2 blue #6"),
	)})
	want := "record 1, change 1 breaks P6 (deletes): the history requires DELETED b at 6 (b/1 at 4); the consumer received DELETED b at 6 (b/1 at 2), another state"
	if len(v) != 1 || v[0].String() != want {
		t.Errorf("got %v\nwant %s", v, want)
	}
}
