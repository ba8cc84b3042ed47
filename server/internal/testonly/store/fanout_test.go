package store_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// pace is the number of events after which the writer waits for the slowest watcher. It is
// the smallest buffer of a watch cache's watcher: a watcher that is further behind is
// ended, unless it catches up within some milliseconds.
const pace = 10

// BenchmarkFanOut prints the number of events a second that reach watchers of everything:
// at a pace at which a watch cache ends no watcher, and as fast as the writer can.
func BenchmarkFanOut(b *testing.B) {
	for b.Loop() {
		fmt.Print("\n| watchers | events | keepwatch, events/s | watch cache, events/s | keepwatch / watch cache | keepwatch flat out, events/s | watch cache flat out: cut off |\n|---|---|---|---|---|---|---|\n")
		for _, of := range []struct{ watchers, events int }{{1, 20_000}, {100, 10_000}, {1_000, 2_000}, {10_000, 300}} {
			fanOut(of.watchers, of.events)
		}
	}
}

func fanOut(watchers, events int) {
	var us, them, flat []float64
	for range 3 {
		f := newFleet(10_000)
		news := f.updates(f.some(events))
		// A window for all of it: a gap would be fewer events.
		s := newOurs(f, 1<<30)
		paced, _ := rate(watchers, news, pace, s.apply, s.follow)
		us = append(us, paced)
		s = newOurs(f, 1<<30)
		full, _ := rate(watchers, news, events, s.apply, s.follow)
		flat = append(flat, full)
		w := newWatchCache(f)
		paced, gone := rate(watchers, news, pace, w.send, w.follow)
		if them = append(them, paced); gone > 0 {
			panic("the watch cache has ended a watcher without lag")
		}
		w.close()
	}
	f := newFleet(10_000)
	w := newWatchCache(f)
	_, cut := rate(watchers, f.updates(f.some(events)), events, w.send, w.follow)
	w.close()
	u, t := median(us), median(them)
	fmt.Printf("| %d | %d | %.3g | %.3g | %.3g× | %.3g | %.0f %% |\n", watchers, events, u, t, u/t, median(flat),
		float64(100*cut)/float64(watchers))
}

// receive blocks for events and returns how many there are; none at the end.
type receive func() int

func (s ours) follow() receive {
	w := s.Watch(s.Snapshot().Cursor(), store.Filter{})
	return func() int {
		d, err := w.Next(context.Background())
		must(err)
		return len(d.(keepwatch.Batch).Changes)
	}
}

func (w *watchCache) follow() receive {
	events, err := w.Watch(context.Background(), prefix, w.options(strconv.Itoa(first)))
	must(err)
	return func() int {
		if e, ok := <-events.ResultChan(); !ok {
			return 0
		} else if e.Type != watch.Modified {
			panic(e)
		}
		return 1
	}
}

// rate is how many events a second are received, and how many watchers ended
// before they had all.
func rate(watchers int, news []keepwatch.Object, chunk int, apply func([]keepwatch.Object),
	follow func() receive) (perSecond float64, cut int) {
	reached := make(chan bool, watchers) // the end of the chunk, or the watcher's
	received := make(chan int, watchers)
	for range watchers {
		next := follow()
		go func() {
			seen := 0
			defer func() { received <- seen }()
			for seen < len(news) {
				before := seen
				seen += next()
				if seen == before {
					reached <- false
					return
				}
				if seen/chunk > before/chunk {
					reached <- true
				}
			}
		}()
	}
	began := time.Now()
	following := watchers
	for i := 0; i < len(news); i += chunk {
		apply(news[i : i+chunk])
		for waiting := following; waiting > 0; waiting-- {
			if !<-reached {
				following--
			}
		}
	}
	elapsed := time.Since(began)
	all := 0
	for range watchers {
		all += <-received
	}
	return float64(all) / elapsed.Seconds(), watchers - following
}
