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

// BenchmarkFanOut prints how many events a second reach their watchers, each of
// whom watches everything: at the pace of the slowest, who is waited for after
// every 50 events, and as fast as the writer can. A watch cache cuts off watchers
// who don't keep up; they are counted.
func BenchmarkFanOut(b *testing.B) {
	for b.Loop() {
		fmt.Print("\n| watchers | events | pace | keepwatch, events/s | watch cache, events/s | keepwatch / watch cache | cut off by the watch cache |\n|---|---|---|---|---|---|---|\n")
		for _, of := range []struct{ watchers, events int }{{1, 100_000}, {100, 100_000}, {1_000, 20_000}, {10_000, 2_000}} {
			for _, chunk := range []int{50, of.events} {
				fanOut(of.watchers, of.events, chunk)
			}
		}
	}
}

func fanOut(watchers, events, chunk int) {
	var us, them []float64
	cut := 0
	for range 3 {
		f := newFleet(10_000)
		news := f.updates(f.some(events))
		s := newOurs(f)
		r, _ := rate(watchers, news, chunk, s.apply, s.follow)
		us = append(us, r)
		w := newWatchCache(f)
		r, gone := rate(watchers, news, chunk, w.apply, w.follow)
		them, cut = append(them, r), cut+gone
		w.close()
	}
	pace := fmt.Sprint("waits every ", chunk)
	if chunk == events {
		pace = "flat out"
	}
	u, t := median(us), median(them)
	fmt.Printf("| %d | %d | %s | %.3g | %.3g | %.3g× | %d of %d |\n", watchers, events, pace, u, t, u/t, cut, 3*watchers)
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
func rate(watchers int, news []keepwatch.Object, chunk int, apply func([]keepwatch.Object), follow func() receive) (perSecond float64, cut int) {
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
	alive := watchers
	for i := 0; i < len(news); i += chunk {
		apply(news[i : i+chunk])
		for waiting := alive; waiting > 0; waiting-- {
			if !<-reached {
				alive--
			}
		}
	}
	took := time.Since(began)
	all := 0
	for range watchers {
		all += <-received
	}
	return float64(all) / took.Seconds(), watchers - alive
}
