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
			if n.Held == 10 {
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
