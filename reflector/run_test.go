package reflector_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
)

// TestRunEndsWithItsContext checks that Run ends at once with the context's cause, whatever
// it waits for.
func TestRunEndsWithItsContext(t *testing.T) {
	for name, script := range map[string]string{
		"streaming list": "hang",
		"part of it":     "state a@3\nhang",
		"list":           "fail streaming list unsupported\nhang",
		"page":           "fail streaming list unsupported\npage 10 a@3 continue=p2\nhang",
		"opening":        "state a@3 =10\nfail ended\nhang",
		"watch":          "state a@3 =10\nhang",
		"probe":          "restored a@3 =10\nhang",
		"wait":           "fail throttled after 1m",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				filled := store.New(store.Options{})
				lines := strings.Split(script, "\n")
				if words := strings.Fields(lines[0]); words[0] == "restored" {
					fill(t, filled, words[1:])
					lines = lines[1:]
				}
				p := &player{lines: lines, cancel: func() { t.Error("the script was over") }, start: time.Now(),
					watcher: filled.Watch(store.Cursor{}, store.Filter{})}
				ended := make(chan error)
				go func() {
					ended <- reflector.New(p, filled, reflector.Options{StartupDeadline: -1}).Run(ctx)
				}()
				synctest.Wait() // until all goroutines are blocked
				begin, enough := time.Now(), errors.New("enough")
				cancel(enough)
				if err := <-ended; err != enough || time.Since(begin) > 0 {
					t.Errorf("returned %v after %v", err, time.Since(begin))
				}
			})
		})
	}
}

// TestRelistKeepsTheStore checks that readers see the old state until the new one is
// complete, even if the list starts over in between.
func TestRelistKeepsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		filled := store.New(store.Options{})
		fill(t, filled, []string{"a@3", "b@4", "c@5", "=10"})
		p := &player{cancel: cancel, start: time.Now(), watcher: filled.Watch(store.Cursor{}, store.Filter{}),
			lines: []string{
				"newest 10", "fail expired", "page 20 a@3 continue=p2", "fail unreachable", "page 20 continue=p3",
				"fail expired", "page 30 continue=p2", "page 30 d@25",
			}}
		relisting := 0
		err := reflector.New(p, filled, reflector.Options{Seed: 1, Observe: func(n reflector.Notice) {
			if n.Revision == 10 {
				relisting++
				if s := filled.Snapshot(); s.Len() != 3 || s.Revision() != 10 {
					t.Errorf("at %+v readers see %d objects at %d", n, s.Len(), s.Revision())
				}
			}
		}}).Run(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if s := filled.Snapshot(); relisting < 6 || s.Len() != 1 || s.Revision() != 30 {
			t.Errorf("after %d notices readers see %d objects at %d", relisting, s.Len(), s.Revision())
		}
		if _, ok := filled.Snapshot().Get(keepwatch.Key{Name: "d"}); !ok {
			t.Error("d is missing")
		}
	})
}

// TestProgress checks Progress while the reflector runs.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		filled := store.New(store.Options{})
		start := time.Now()
		p := &player{cancel: cancel, start: start, watcher: filled.Watch(store.Cursor{}, store.Filter{}), lines: []string{
			"state a@3 =10", "sleep 1m", "batch 12 ~a@12 ~a@11", "sleep 1m", "bookmark 20", "sleep 1m", "fail unreachable",
			"fail forbidden", "hang",
		}}
		r := reflector.New(p, filled, reflector.Options{Seed: 1, StartupDeadline: -1})
		if got := r.Progress(); got.State != reflector.Stopped || got.Since != start || !got.LastConfirmed.IsZero() {
			t.Errorf("before Run: %+v", got)
		}
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		for _, step := range []struct {
			at                      time.Duration
			state                   reflector.State
			since, event, confirmed time.Duration
			filled                  keepwatch.Revision
			dropped, cut, denied    uint64
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
			after("confirmed", got.LastConfirmed, step.confirmed)
			if got.State != step.state || got.Revision != step.filled || got.Dropped != step.dropped ||
				got.Reconnects[keepwatch.Unreachable] != step.cut || got.Reconnects[keepwatch.Forbidden] != step.denied ||
				len(got.Relists) > 0 {
				t.Errorf("after %v: %+v", step.at, got)
			}
		}
		cancel()
		<-ended
		if got := r.Progress(); got.State != reflector.Stopped || got.Since != time.Now() ||
			got.LastFailure.Kind != keepwatch.Forbidden {
			t.Errorf("after Run: %+v", got)
		}
	})
}

// observation is the expected Progress at one moment of a test.
type observation struct {
	at             time.Duration
	state          reflector.State
	since, notLive time.Duration // -1: any time; zero
}

// checkProgress plays a script and checks the reflector's Progress at some moments.
func checkProgress(t *testing.T, script []string, want ...observation) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		filled := store.New(store.Options{})
		start := time.Now()
		p := &player{cancel: cancel, start: start, watcher: filled.Watch(store.Cursor{}, store.Filter{}), lines: script}
		r := reflector.New(p, filled, reflector.Options{Seed: 1, StartupDeadline: -1})
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		for _, l := range want {
			time.Sleep(l.at - time.Since(start))
			synctest.Wait()
			got := r.Progress()
			if notLive := got.NotLiveSince.Sub(start); got.State != l.state || l.since >= 0 && got.Since.Sub(start) != l.since ||
				got.NotLiveSince.IsZero() != (l.notLive < 0) || l.notLive >= 0 && notLive != l.notLive {
				t.Errorf("after %v: %s since %v, not live since %v (%v); want %+v", l.at, got.State, got.Since.Sub(start), notLive,
					got.NotLiveSince.IsZero(), l)
			}
		}
		cancel()
		<-ended
	})
}

// TestResetWatchIsNoProgress checks that a server that accepts watches and resets them at
// once makes no progress.
func TestResetWatchIsNoProgress(t *testing.T) {
	script := []string{"state a@3 =10", "sleep 1m", "fail unreachable"}
	for range 10 {
		script = append(script, slices.Repeat([]string{"open", "fail unreachable"}, 10)...)
		script = append(script, "newest 10") // it is current, but no watch works
	}
	const cut = time.Minute
	checkProgress(t, script,
		observation{30 * time.Second, reflector.Live, 0, -1},
		observation{cut, reflector.Stalled, cut, cut},
		observation{2 * time.Minute, reflector.Stalled, cut, cut},
		observation{10 * time.Minute, reflector.Stalled, cut, cut},
		observation{20 * time.Minute, reflector.Stalled, cut, cut},
	)
	// A source that refuses connections is not asked.
	checkProgress(t, append(slices.Clip(script[:3]), slices.Repeat([]string{"fail unreachable"}, 100)...),
		observation{10 * time.Minute, reflector.Stalled, cut, cut},
	)
}

// TestSteadyWatchIsProgress checks that a watch that stays open is progress: a quiet resource
// may have no events, and its server no bookmarks.
func TestSteadyWatchIsProgress(t *testing.T) {
	const cut = time.Minute
	reopened := cut + 478608760 // after a backoff that the seed gives
	steady := reopened + 10*time.Second
	checkProgress(t, []string{"state a@3 =10", "sleep 1m", "fail unreachable", "open", "sleep 1m", "fail unreachable",
		"hang"},
		observation{reopened, reflector.Stalled, cut, cut},
		observation{steady - 1, reflector.Stalled, cut, cut},
		observation{steady, reflector.Live, steady, -1},
		observation{reopened + time.Minute - 1, reflector.Live, steady, -1},
		observation{reopened + time.Minute, reflector.Stalled, reopened + time.Minute, reopened + time.Minute},
	)
	checkProgress(t, []string{"state a@3 =10", "sleep 1m", "fail unreachable", "open", "sleep 1s", "bookmark 11", "hang"},
		observation{reopened, reflector.Stalled, cut, cut},
		observation{reopened + time.Second, reflector.Live, reopened + time.Second, -1},
	)
	// Progress was not called in between.
	checkProgress(t, []string{"state a@3 =10", "sleep 1m", "fail unreachable", "open", "sleep 1m", "fail ended", "hang"},
		observation{reopened + time.Minute, reflector.Live, steady, -1},
	)
}

// TestUnfinishedListIsNoProgress checks that the parts of a list that does not end are no
// progress.
func TestUnfinishedListIsNoProgress(t *testing.T) {
	var script []string
	for range 100 {
		script = append(script, "objects a@3", "fail unreachable")
	}
	checkProgress(t, script, observation{0, reflector.Stalled, 0, 0}, observation{10 * time.Minute, reflector.Stalled, -1,
		0})
}

// TestReadsAhead checks that the next page is read while the target stores one, and that Run ends after the reading.
func TestReadsAhead(t *testing.T) {
	s, full := &endlessPage{begun: make(chan struct{})}, errors.New("no space left on device")
	target := storing{ending{}, func() error { <-s.begun; return full }}
	if err := reflector.New(s, target, reflector.Options{Paged: true}).Run(t.Context()); err != full || !s.ended {
		t.Errorf("Run returned %v; the reading has ended: %v", err, s.ended)
	}
}

// endlessPage is a source whose second page takes until the request is cancelled.
type endlessPage struct {
	keepwatch.Source
	begun chan struct{}
	ended bool
}

func (s *endlessPage) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	if req.Continue == "" {
		return keepwatch.Page{Revision: 7, Continue: "p2"}, nil
	}
	close(s.begun)
	<-ctx.Done()
	s.ended = true
	return keepwatch.Page{}, keepwatch.Failed(keepwatch.Unreachable, "%w", ctx.Err())
}

// storing is a target that stores pages by a function.
type storing struct {
	ending
	put func() error
}

func (s storing) Replace(context.Context, keepwatch.Relist) (keepwatch.Replacement, error) {
	return s, nil
}
func (s storing) Put(context.Context, []keepwatch.Object) error  { return s.put() }
func (storing) Commit(context.Context, keepwatch.Revision) error { return nil }
func (storing) Discard()                                         {}

// A panic of the source while a page is read ahead is one of Run, whose caller recovers.
func TestPanicAhead(t *testing.T) {
	defer func() {
		if got := recover(); got != "a faulty source" {
			t.Errorf("recovered: %v", got)
		}
	}()
	target := storing{ending{}, func() error { return nil }}
	err := reflector.New(panickingPage{}, target, reflector.Options{Paged: true}).Run(t.Context())
	t.Errorf("Run returned %v", err)
}

// panickingPage is a source that panics at its second page.
type panickingPage struct{ keepwatch.Source }

func (panickingPage) List(_ context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	if req.Continue == "" {
		return keepwatch.Page{Revision: 7, Continue: "p2"}, nil
	}
	panic("a faulty source")
}
