package sinktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/store"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// Hours is a test of the replays of hours of a history, in a bubble of testing/synctest.
type Hours struct {
	Seed uint64
	For  time.Duration
	// Replays is how many there are of each resource at each speed.
	Replays int
	Sink    sink.Sink
	// Past opens the sink's database.
	Past func() history.Database
}

// hours is a run of [Hours].
type hours struct {
	Hours
	t      *testing.T
	random *rand.Rand
	worlds []*world
	began  time.Time

	mu    sync.Mutex
	gaps  map[keepwatch.GapReason]int
	count map[float64]int // by speed: changes
	// written has when the revisions of each world were written.
	written []map[sink.Point]time.Time
}

// errReplayed is why replays end.
var errReplayed = errors.New("the replay is at its end")

// TestHours stores hours of writes, compactions, restores and downtimes. Then it replays each resource through a
// reflector into a store, at the recorded pace, sixty times as fast, and at once, from the beginning and from moments
// at random. The promises hold for each, nothing comes before it is due, and the end not long after that.
func TestHours(t *testing.T, test Hours) {
	t.Helper()
	h := &hours{Hours: test, t: t, random: rand.New(rand.NewPCG(test.Seed, 12)), began: time.Now(),
		gaps: map[keepwatch.GapReason]int{}, count: map[float64]int{}}
	for line, names := range lines {
		h.worlds = append(h.worlds, newWorld(test.Seed, keepwatch.Revision(10+1000*line), names...))
		h.written = append(h.written, map[sink.Point]time.Time{})
	}
	h.record()
	database := test.Past()
	defer database.Close()
	past := history.New(database, history.Options{})
	var replays sync.WaitGroup
	for _, s := range Streams() {
		for _, speed := range []float64{1, 60, 0} {
			for i := range test.Replays {
				from := h.moment(past, s.ID.Resource, i == 0)
				replays.Go(func() { h.replay(past, s, from, speed) })
			}
		}
	}
	replays.Wait()
	t.Logf("changes by speed: %v, gaps: %v", h.count, h.gaps)
	for _, reason := range []keepwatch.GapReason{keepwatch.GapExpired, keepwatch.GapRewind} {
		if h.gaps[reason] == 0 {
			t.Errorf("no replay has met a gap of the reason %s", reason)
		}
	}
}

// write commits some writes to a random world, which it returns.
func (h *hours) write() *world {
	line := h.random.IntN(len(h.worlds))
	w := h.worlds[line]
	before, _ := w.head()
	w.write(1 + h.random.IntN(6))
	after, _ := w.head()
	for r := before + 1; r <= after; r++ {
		h.written[line][sink.Point{Epoch: len(w.epochs) - 1, Revision: r}] = time.Now()
	}
	return w
}

// record stores what happens to the sources.
func (h *hours) record() {
	h.t.Helper()
	start := func() (stop func()) {
		var resources []transfer.Resource
		for _, s := range Streams() {
			resources = append(resources, transfer.Resource{Stream: s, Source: &source{h.worlds[s.Line], s.ID.Resource}})
		}
		ctx, cancel := context.WithCancel(h.t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := transfer.New(h.Sink, resources, transfer.Options{}).Run(ctx); ctx.Err() == nil {
				h.t.Errorf("the transfer ended: %v", err)
			}
		})
		return func() { cancel(); running.Wait() }
	}
	stop := start()
	down, restored := h.For/3, h.For/2
	for time.Since(h.began) < h.For {
		w := h.write()
		switch h.random.IntN(100) {
		case 0:
			w.compact()
		case 1, 2, 3:
			w.disconnect()
		}
		switch passed := time.Since(h.began); {
		case passed > restored: // nobody notices it once the source has passed the cursor again
			time.Sleep(time.Minute)
			h.worlds[0].restore()
			restored += h.For
			time.Sleep(h.For / 15)
		case passed > down:
			stop()
			down += h.For
			for range 20 {
				h.write()
				time.Sleep(h.For / 300)
			}
			w.compact()
			stop = start()
		}
		time.Sleep(time.Duration(h.random.IntN(60_000)) * time.Millisecond)
	}
	time.Sleep(10 * time.Minute) // it is stored
	stop()
}

// moment is a point of a resource, and its time.
type moment struct {
	sink.Point
	time time.Time
}

// moment returns the first moment of a resource, or one at random.
func (h *hours) moment(past *history.History, resource string, first bool) (found moment) {
	h.t.Helper()
	for found.Revision == 0 {
		err := past.View(h.t.Context(), func(v *history.View) error {
			of, err := v.StreamOf(resource, "")
			if err != nil {
				return err
			}
			at := of.FirstSeen.Add(time.Duration(h.random.Int64N(int64(of.Time.Sub(of.FirstSeen)))))
			if first {
				at = of.FirstSeen
			}
			points, err := v.Points(h.t.Context(), history.Moment{Time: at}, false, of)
			if unknown := (*history.Unknown)(nil); errors.As(err, &unknown) && !first {
				return nil // another one
			}
			if err == nil {
				found = moment{points.Of(of), at}
			}
			return err
		})
		if err != nil {
			h.t.Fatal(err)
		}
	}
	return found
}

// replay replays a resource from a moment on.
func (h *hours) replay(past *history.History, of sink.Stream, from moment, speed float64) {
	name := fmt.Sprintf("%s from %v at speed %g", of.ID.Resource, from, speed)
	end, ended := h.end(past, of.ID.Resource)
	var took time.Duration
	if speed > 0 {
		took = time.Duration(float64(ended.Sub(from.time)) / speed)
	}
	ctx, cancel := context.WithCancelCause(h.t.Context())
	defer cancel(nil)
	began := time.Now()
	target := store.New(store.Options{})
	source := past.Source(history.SourceOptions{Resource: of.ID.Resource, At: from.Point, Time: from.time, Onward: true,
		Speed: speed})
	if err := begin(ctx, source, target); err != nil {
		h.t.Errorf("%s: %v", name, err)
		return
	}
	transcript := check.Transcript{From: from.Revision, Epoch: from.Epoch, Over: true,
		Calm: &check.Calm{At: began.Add(took), Within: time.Minute}}
	watcher := target.Watch(target.Snapshot().Cursor(), store.Filter{})
	var running sync.WaitGroup
	running.Go(func() {
		if err := reflector.New(source, target, reflector.Options{}).Run(ctx); !errors.Is(err, errReplayed) {
			h.t.Errorf("%s: %v", name, err)
		}
	})
	epoch := from.Epoch
	for watcher.Cursor().Revision < end.Revision || epoch < end.Epoch {
		d, err := watcher.Next(ctx)
		if err != nil {
			h.t.Errorf("%s: %v", name, err)
			break
		}
		transcript.Records = append(transcript.Records, check.Received{Delivery: d, At: time.Now()})
		if gap, ok := d.(keepwatch.Gap); ok && gap.Reason == keepwatch.GapRewind {
			epoch++
		}
		if speed > 0 {
			h.judgePace(name, d, epoch, h.written[of.Line], began, from, speed)
		}
		h.add(d, speed)
	}
	snapshot := target.Snapshot()
	shown := check.Shown{Revision: snapshot.Cursor().Revision}
	for o := range snapshot.All() {
		shown.Objects = append(shown.Objects, o)
	}
	cancel(errReplayed)
	running.Wait()
	transcript.Records = append(transcript.Records, shown, check.Ended{Err: errReplayed, Asked: errReplayed,
		At: time.Now()})
	expected := h.worlds[of.Line].history(of.ID.Resource)
	expected.Content = noteOf
	for i, v := range check.Judge(expected, nil, transcript) {
		if i < 3 {
			h.t.Errorf("%s: %v", name, v)
		}
	}
}

// begin lets a store have the state of a source's moment.
func begin(ctx context.Context, source *history.Source, target *store.Store) error {
	page, err := source.List(ctx, keepwatch.ListRequest{})
	if err != nil {
		return err
	}
	replacement, err := target.Replace(ctx, keepwatch.Relist{To: page.Revision})
	if err != nil {
		return err
	}
	return errors.Join(replacement.Put(ctx, page.Objects), replacement.Commit(ctx, page.Revision))
}

// end returns the newest point of a resource, and when it was stored.
func (h *hours) end(past *history.History, resource string) (at sink.Point, stored time.Time) {
	err := past.View(h.t.Context(), func(v *history.View) error {
		of, err := v.StreamOf(resource, "")
		if err != nil {
			return err
		}
		at = sink.Point{Epoch: of.Progress.Epoch, Revision: of.Progress.Cursor}
		stored, err = v.SeenAt(h.t.Context(), of, at)
		return err
	})
	if err != nil {
		h.t.Error(err)
	}
	return at, stored
}

// changesOf returns the changes of a delivery.
func changesOf(d keepwatch.Delivery) []keepwatch.Change {
	switch d := d.(type) {
	case keepwatch.Batch:
		return d.Changes
	case keepwatch.Gap:
		return d.Changes
	}
	return nil
}

// add counts a delivery.
func (h *hours) add(d keepwatch.Delivery, speed float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if gap, ok := d.(keepwatch.Gap); ok {
		h.gaps[gap.Reason]++
	}
	h.count[speed] += len(changesOf(d))
}

// judgePace checks that no change of an epoch comes before it was written, at the replay's speed.
func (h *hours) judgePace(name string, d keepwatch.Delivery, epoch int, written map[sink.Point]time.Time,
	began time.Time, from moment, speed float64) {
	for _, c := range changesOf(d) {
		at, known := written[sink.Point{Epoch: epoch, Revision: c.Revision}]
		due := time.Duration(float64(at.Sub(from.time)) / speed)
		if after := time.Since(began); known && after < due {
			h.t.Errorf("%s: %d comes after %v, and is due after %v", name, c.Revision, after, due)
		}
	}
}

// noteOf returns the content of an object of a world, or of its history.
func noteOf(o keepwatch.Object) string {
	switch o := o.(type) {
	case *object:
		return o.note
	case *history.Object:
		var b body
		if err := json.Unmarshal(o.JSON(), &b); err != nil {
			return err.Error()
		}
		return b.Note
	}
	return ""
}
