package served

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

// The measures of a fan-out.
const (
	perEvent = "server CPU per event"
	p50      = "p50 latency"
	p99      = "p99 latency"
	cutOff   = "watchers cut off"
	behind   = "last event after last write"
)

// fanOut is watchers of everything, and updates a second.
type fanOut struct{ watchers, rate int }

var fanOuts = []fanOut{{100, 200}, {100, 1000}, {1000, 50}, {1000, 200}, {5000, 10}}

func (f fanOut) row() string { return fmt.Sprintf("%d watchers × %d/s", f.watchers, f.rate) }

// publish writes n updates, so many a second.
type publish func(ctx context.Context, n, rate int) ([]written, error)

// measureFanOut measures a fan-out of updates that are written for that long.
func (s *subject) measureFanOut(ctx context.Context, r *Report, f fanOut, path string, publish publish,
	writing time.Duration) error {
	events := int(writing.Seconds() * float64(f.rate))
	c, err := s.openWatchers(ctx, f.watchers, path, events)
	if err != nil {
		return err
	}
	defer c.close()
	var all []written
	u, err := measure(s.process(), func() (err error) {
		if all, err = publish(ctx, events, f.rate); err != nil {
			return err
		}
		return c.waitForEvents(ctx, events)
	})
	if err != nil {
		return err
	}
	gone := c.countEnded()
	c.close() // no events arrive afterwards
	measured, err := c.judge(all, u)
	if err != nil {
		return err
	}
	r.Add(s.by, f.row(), append(measured, Figure{cutOff, figures.Losses, float64(gone)}, size(growth, u.growth))...)
	return nil
}

// judge compares the events and their arrival times with the writes.
func (c *watcherGroup) judge(all []written, u usage) ([]Figure, error) {
	var late []time.Duration
	last := time.Duration(-1) // of the watchers that received every event
	for _, w := range c.watchers {
		if len(w.arrivals) > len(all) {
			return nil, fmt.Errorf("a watcher received %d updates, and %d were written", len(w.arrivals), len(all))
		}
		for i, at := range w.arrivals {
			late = append(late, at-all[i].at.Sub(c.start))
		}
		if n := len(w.arrivals); n == len(all) {
			last = max(last, w.arrivals[n-1])
		}
	}
	if len(late) == 0 {
		return nil, fmt.Errorf("no watcher received an event")
	}
	slices.Sort(late)
	end := all[0].at
	for _, w := range all {
		if w.at.After(end) {
			end = w.at
		}
	}
	lag := math.NaN()
	if last >= 0 {
		lag = (last - end.Sub(c.start)).Seconds()
	}
	return []Figure{
		count("events delivered", len(late)),
		seconds(perEvent, u.cpu/time.Duration(len(late))),
		seconds(p50, late[len(late)/2]), seconds(p99, late[len(late)*99/100]),
		{behind, figures.Seconds, lag},
		{"updates per second", figures.Count, math.Round(float64(len(all)) / end.Sub(all[0].at).Seconds())},
	}, nil
}
