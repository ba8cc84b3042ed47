package reflector_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
)

// TestRunEndsWithItsContext, wherever it is, at once and with the cause.
func TestRunEndsWithItsContext(t *testing.T) {
	for name, script := range map[string]string{
		"streaming list": "hang",
		"part of one":    "state a@3\nhang",
		"list":           "fail streaming list unsupported\nhang",
		"page":           "fail streaming list unsupported\npage 10 a@3 continue=p2\nhang",
		"opening":        "state a@3 =10\nfail ended\nhang",
		"watch":          "state a@3 =10\nhang",
		"question":       "held a@3 =10\nhang",
		"wait":           "fail throttled after 1m",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				held := store.New(store.Options{})
				lines := strings.Split(script, "\n")
				if words := strings.Fields(lines[0]); words[0] == "held" {
					hold(t, held, words[1:])
					lines = lines[1:]
				}
				p := &player{lines: lines, cancel: func() { t.Error("the script was over") }, start: time.Now(),
					watcher: held.Watch(store.Cursor{}, store.Filter{})}
				ended := make(chan error)
				go func() {
					ended <- reflector.New(p, held, reflector.Options{StartupDeadline: -1}).Run(ctx)
				}()
				synctest.Wait() // all have come as far as they can
				begin, enough := time.Now(), errors.New("enough")
				cancel(enough)
				if err := <-ended; err != enough || time.Since(begin) > 0 {
					t.Errorf("returned %v after %v", err, time.Since(begin))
				}
			})
		})
	}
}

// TestARelistNeverEmptiesTheStore: readers see the old state until the new one is
// complete, be it that the list starts over on the way.
func TestARelistNeverEmptiesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		held := store.New(store.Options{})
		hold(t, held, []string{"a@3", "b@4", "c@5", "=10"})
		p := &player{cancel: cancel, start: time.Now(), watcher: held.Watch(store.Cursor{}, store.Filter{}), lines: []string{
			"newest 10", "fail expired", "page 20 a@3 continue=p2", "fail unreachable", "page 20 continue=p3",
			"fail expired", "page 30 continue=p2", "page 30 d@25",
		}}
		relisting := 0
		err := reflector.New(p, held, reflector.Options{Seed: 1, Observe: func(n reflector.Notice) {
			if n.Revision == 10 {
				relisting++
				if s := held.Snapshot(); s.Len() != 3 || s.Revision() != 10 {
					t.Errorf("at %+v readers see %d objects at %d", n, s.Len(), s.Revision())
				}
			}
		}}).Run(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if s := held.Snapshot(); relisting < 6 || s.Len() != 1 || s.Revision() != 30 {
			t.Errorf("after %d notices readers see %d objects at %d", relisting, s.Len(), s.Revision())
		}
		if _, ok := held.Snapshot().Get(keepwatch.Key{Name: "d"}); !ok {
			t.Error("d is missing")
		}
	})
}

// TestProgress looks at a reflector while it runs.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		held := store.New(store.Options{})
		start := time.Now()
		p := &player{cancel: cancel, start: start, watcher: held.Watch(store.Cursor{}, store.Filter{}), lines: []string{
			"state a@3 =10", "pass 1m", "batch 12 ~a@12 ~a@11", "pass 1m", "mark 20", "pass 1m", "fail unreachable", "fail forbidden", "hang",
		}}
		r := reflector.New(p, held, reflector.Options{Seed: 1, StartupDeadline: -1})
		if got := r.Progress(); got.State != reflector.Stopped || got.Since != start || !got.LastConfirmed.IsZero() {
			t.Errorf("before Run: %+v", got)
		}
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		for _, step := range []struct {
			at                   time.Duration
			state                reflector.State
			since, event, proof  time.Duration
			held                 keepwatch.Revision
			dropped, cut, denied uint64
		}{
			{30 * time.Second, reflector.Live, 0, -1, 0, 10, 0, 0, 0},
			{90 * time.Second, reflector.Live, 0, time.Minute, time.Minute, 12, 1, 0, 0},
			{150 * time.Second, reflector.Live, 0, time.Minute, 2 * time.Minute, 20, 1, 0, 0},
			{time.Hour, reflector.Forbidden, -1, time.Minute, 2 * time.Minute, 20, 1, 1, 1},
		} {
			time.Sleep(step.at - time.Since(start))
			synctest.Wait()
			got := r.Progress()
			after := func(what string, at time.Time, want time.Duration) {
				if want >= 0 && at.Sub(start) != want || want < 0 && what == "event" && !at.IsZero() {
					t.Errorf("after %v: %s at %v, want %v", step.at, what, at.Sub(start), want)
				}
			}
			after("since", got.Since, step.since)
			after("event", got.LastEvent, step.event)
			after("proof", got.LastConfirmed, step.proof)
			if got.State != step.state || got.Revision != step.held || got.Dropped != step.dropped ||
				got.Reconnects[keepwatch.Unreachable] != step.cut || got.Reconnects[keepwatch.Forbidden] != step.denied || len(got.Relists) > 0 {
				t.Errorf("after %v: %+v", step.at, got)
			}
		}
		cancel()
		<-ended
		if got := r.Progress(); got.State != reflector.Stopped || got.Since != time.Now() || got.LastFailure.Kind != keepwatch.Forbidden {
			t.Errorf("after Run: %+v", got)
		}
	})
}

// look is what a reflector shows at one moment of a test.
type look struct {
	at          time.Duration
	state       reflector.State
	since, lost time.Duration // -1: since whenever; not lost
}

// looks plays a script, and compares what the reflector shows at some moments of it.
func looks(t *testing.T, script []string, want ...look) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		held := store.New(store.Options{})
		start := time.Now()
		p := &player{cancel: cancel, start: start, watcher: held.Watch(store.Cursor{}, store.Filter{}), lines: script}
		r := reflector.New(p, held, reflector.Options{Seed: 1, StartupDeadline: -1})
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		for _, l := range want {
			time.Sleep(l.at - time.Since(start))
			synctest.Wait()
			got := r.Progress()
			if lost := got.Lost.Sub(start); got.State != l.state || l.since >= 0 && got.Since.Sub(start) != l.since ||
				got.Lost.IsZero() != (l.lost < 0) || l.lost >= 0 && lost != l.lost {
				t.Errorf("after %v: %s since %v, lost at %v (%v); want %+v", l.at, got.State, got.Since.Sub(start), lost, got.Lost.IsZero(), l)
			}
		}
		cancel()
		<-ended
	})
}

// A server that takes watches and resets them at once makes no progress, however
// often it does so.
func TestAWatchThatIsResetIsNoProgress(t *testing.T) {
	script := []string{"state a@3 =10", "pass 1m", "fail unreachable"}
	for range 100 {
		script = append(script, "open", "fail unreachable")
	}
	const cut = time.Minute
	looks(t, script,
		look{30 * time.Second, reflector.Live, 0, -1},
		look{cut, reflector.Stalled, cut, cut},
		look{2 * time.Minute, reflector.Stalled, cut, cut},
		look{10 * time.Minute, reflector.Stalled, cut, cut},
	)
}

// A watch that stays open is progress, though a quiet resource may have no event and
// a server no bookmarks: for health, and for who looks at the state.
func TestAWatchThatStaysOpenIsProgress(t *testing.T) {
	const cut = time.Minute
	reopened := cut + 478608760 // after a backoff that the seed gives
	steady := reopened + 10*time.Second
	looks(t, []string{"state a@3 =10", "pass 1m", "fail unreachable", "open", "pass 1m", "fail unreachable", "hang"},
		look{reopened, reflector.Stalled, cut, cut},
		look{steady - 1, reflector.Stalled, cut, cut},
		look{steady, reflector.Live, steady, -1},
		look{reopened + time.Minute - 1, reflector.Live, steady, -1},
		look{reopened + time.Minute, reflector.Stalled, reopened + time.Minute, reopened + time.Minute},
	)
	looks(t, []string{"state a@3 =10", "pass 1m", "fail unreachable", "open", "pass 1s", "mark 11", "hang"},
		look{reopened, reflector.Stalled, cut, cut},
		look{reopened + time.Second, reflector.Live, reopened + time.Second, -1},
	)
	// Nobody may have looked meanwhile.
	looks(t, []string{"state a@3 =10", "pass 1m", "fail unreachable", "open", "pass 1m", "fail ended", "hang"},
		look{reopened + time.Minute, reflector.Live, steady, -1},
	)
}

// A list that never comes to its end is no progress either, though parts of it arrive.
func TestAListThatDoesNotEndIsNoProgress(t *testing.T) {
	var script []string
	for range 100 {
		script = append(script, "objects a@3", "fail unreachable")
	}
	looks(t, script, look{0, reflector.Stalled, 0, 0}, look{10 * time.Minute, reflector.Stalled, -1, 0})
}
