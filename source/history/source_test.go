package history_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/store"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// short returns a delivery in short: "10-12: MODIFIED a@12", or "gap 20-30: …".
func short(d keepwatch.Delivery) string {
	var changes []keepwatch.Change
	var text string
	switch d := d.(type) {
	case keepwatch.Batch:
		text, changes = fmt.Sprintf("%d-%d:", d.From, d.To), d.Changes
	case keepwatch.Gap:
		text, changes = fmt.Sprintf("gap %d-%d %s:", d.From, d.To, d.Reason), d.Changes
	}
	for _, c := range changes {
		text += fmt.Sprintf(" %s %s@%d", c.Type, c.Object.Key().Name, c.Revision)
	}
	return text
}

// changing is a database whose tables change.
type changing struct{ current atomic.Pointer[tables] }

func (c *changing) Close() error { return nil }

func (c *changing) Snapshot(ctx context.Context, read func(sink.Snapshot) error) error {
	return c.current.Load().Snapshot(ctx, read)
}

// counting counts the snapshots of a database.
type counting struct {
	*tables
	snapshots atomic.Int64
}

func (c *counting) Snapshot(ctx context.Context, read func(sink.Snapshot) error) error {
	c.snapshots.Add(1)
	return c.tables.Snapshot(ctx, read)
}

// TestReplaysShareReads lets a hundred replays wait at the end of the history: one of them reads for all.
func TestReplaysShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := &counting{tables: past()}
		h := opened(database)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 100 {
			source := h.Source(history.SourceOptions{Resource: "pods", At: at(30), Onward: true})
			w, err := source.Watch(ctx, 30)
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() {
				for {
					if _, err := w.Next(); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(time.Second) // they have delivered what there is
		before := database.snapshots.Load()
		time.Sleep(time.Minute)
		if n := database.snapshots.Load() - before; n > 310 {
			t.Errorf("%d snapshots in a minute", n)
		}
		cancel()
		running.Wait()
	})
}

// TestSource replays a history through a reflector into a store: its batches, its gap, and what is stored while it
// runs.
func TestSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := &changing{}
		database.current.Store(past())
		source := opened(database).Source(history.SourceOptions{Resource: "pods", At: at(10),
			Onward: true})
		target := store.New(store.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		first := make(chan store.Cursor, 1)
		go func() {
			page, err := source.List(ctx, keepwatch.ListRequest{})
			if err != nil || page.Revision != 10 || len(page.Objects) != 2 {
				t.Errorf("the list: %+v, %v", page, err)
			}
			replacement, err := target.Replace(ctx, keepwatch.Relist{To: 10})
			if err == nil {
				err = errors.Join(replacement.Put(ctx, page.Objects), replacement.Commit(ctx, 10))
			}
			if err != nil {
				t.Error(err)
			}
			first <- target.Snapshot().Cursor()
			ended <- reflector.New(source, target, reflector.Options{}).Run(ctx)
		}()
		watcher := target.Watch(<-first, store.Filter{})
		var got []string
		for watcher.Cursor().Revision < 45 {
			d, err := watcher.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, short(d))
		}
		const want = `10-20: MODIFIED a@12 DELETED b@15 ADDED c@18
gap 20-30 expired: MODIFIED a@25 DELETED c@30
30-45: ADDED d@40`
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("got:\n%s\nwant:\n%s", text, want)
		}
		// What is stored later arrives, too.
		later := past()
		later.states = append(later.states, state("e", 47, 0, 9, 0))
		later.status[1].Progress.Cursor = 50
		database.current.Store(later)
		if d, err := watcher.Next(ctx); err != nil || short(d) != "45-50: ADDED e@47" {
			t.Errorf("later: %v, %v", d, err)
		}
		if newest, err := source.Newest(ctx); err != nil || newest != 50 {
			t.Errorf("newest %d, %v", newest, err)
		}
		cancel()
		<-ended
	})
}

// TestSpeed delivers events, and the state at the end of a gap, at the pace at which they were recorded, and as many
// times faster as asked for.
func TestSpeed(t *testing.T) {
	for speed, want := range map[float64]string{1: "1m0s 2m0s 3m0s 5m0s", 60: "1s 2s 3s 5s", 0: "0s 0s"} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			source := opened(past()).Source(history.SourceOptions{Resource: "pods", At: at(10),
				Onward: true, Speed: speed})
			watch, err := source.Watch(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Close()
			var times []string
			for {
				batch, err := watch.Next()
				if err != nil {
					failure, ok := errors.AsType[*keepwatch.Failure](err)
					if !ok || failure.Kind != keepwatch.Expired {
						t.Errorf("the end: %v", err)
					}
					times = append(times, time.Since(began).String()) // the state at the gap's end
					break
				}
				if len(batch.Changes) > 0 {
					times = append(times, time.Since(began).String())
				}
			}
			if got := strings.Join(times, " "); got != want {
				t.Errorf("speed %v: %s, want %s", speed, got, want)
			}
		})
	}
}

// TestTime replays from a time after the last change.
func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		source := opened(past()).Source(history.SourceOptions{Resource: "pods", At: at(10),
			Time: sec(0, 30), Onward: true, Speed: 1})
		watch, err := source.Watch(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		if batch, err := watch.Next(); err != nil || len(batch.Changes) != 1 || time.Since(began) != 30*time.Second {
			t.Errorf("%+v after %v, %v", batch, time.Since(began), err)
		}
	})
}

// quiet is a history in which a pod changes at 12 and, an hour later, at 100, and other objects each minute.
func quiet() *tables {
	database := past()
	database.gaps = nil
	database.states = []sink.State{state("a", 5, 12, 0, 1), state("a", 12, 100, 1, 60), state("a", 100, 0, 60, 0)}
	for i := range 58 {
		s := state("s", 13+i, 14+i, 1+i, 2+i)
		s.Resource = "services"
		database.states = append(database.states, s)
	}
	for i := range database.states {
		database.states[i].ID = int64(i) + 1
	}
	database.status = nil
	for _, resource := range []string{"pods", "services"} {
		database.status = append(database.status, sink.Status{ID: stream.Identity{Resource: resource}, Active: true,
			First: at(10), FirstSeen: minute(0), Progress: sink.Progress{Cursor: 110, Since: 10}, Time: minute(61)})
	}
	return database
}

// TestQuietReplayMovesOn ends a watch every five minutes, and continues after what it has delivered: it does not wait
// again for what other types were waited for.
func TestQuietReplayMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := opened(quiet())
		began, reached := time.Now(), at(12)
		for watches := 1; ; watches++ {
			var start time.Time
			if err := h.View(t.Context(), func(v *history.View) (err error) {
				start, err = v.SeenAt(t.Context(), streamOf(t, v, "pods"), reached)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			source := h.Source(history.SourceOptions{Resource: "pods", At: reached, Time: start, Onward: true, Speed: 1})
			watch, err := source.Watch(t.Context(), reached.Revision)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(5*time.Minute, watch.Close)
			for err == nil {
				var batch keepwatch.Batch
				if batch, err = watch.Next(); err == nil {
					reached.Revision = batch.To
				}
				if len(batch.Changes) > 0 {
					took := time.Since(began)
					if watches < 12 || took < 59*time.Minute || took > 75*time.Minute || batch.Changes[0].Revision != 100 {
						t.Errorf("%+v in watch %d, after %v", batch, watches, took)
					}
					watch.Close()
					return
				}
			}
			if watches == 30 {
				t.Fatalf("%d watches have reached %v", watches, reached)
			}
		}
	})
}

// TestReplayReadsOnce reads each state once, however many times there are, and few bytes at a time.
func TestReplayReadsOnce(t *testing.T) {
	const changes, size = 300, 100_000
	for name, row := range map[string]struct {
		size, queries int
	}{"small": {10, 4}, "large": {size, 100}} {
		synctest.Test(t, func(t *testing.T) {
			database := &asked{tables: past()}
			database.gaps, database.states = nil, nil
			for i := range changes {
				s := state("a", 11+i, 12+i, i+1, i+2)
				s.Object = fmt.Appendf(nil, `{"metadata":{"name":"a"},"data":%q}`, strings.Repeat("x", row.size))
				s.ID = int64(i) + 1
				database.states = append(database.states, s)
			}
			database.status[1].Progress.Cursor, database.status[1].Time = 10+changes, minute(changes+10)
			watch, err := opened(database).Source(history.SourceOptions{Resource: "pods", At: at(10),
				Onward: true, Speed: 60}).Watch(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Close()
			began := time.Now()
			for got := 0; got < changes; {
				batch, err := watch.Next()
				if err != nil {
					t.Fatal(err)
				}
				for range batch.Changes {
					got++
				}
			}
			if took := time.Since(began); took != changes*time.Second {
				t.Errorf("%s: the replay takes %v", name, took)
			}
			if database.queries > row.queries || database.most > 1<<20+2*size {
				t.Errorf("%s: %d queries for states, with at most %d bytes", name, database.queries, database.most)
			}
		})
	}
}

// TestSlowest delivers nothing before its time, however far that is.
func TestSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := opened(past()).Source(history.SourceOptions{
			Resource: "pods", At: at(10), Onward: true, Speed: 1e-12,
		})
		watch, err := source.Watch(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Hour, watch.Close)
		if batch, err := watch.Next(); err == nil {
			t.Errorf("within an hour: %+v", batch)
		}
	})
}

// TestStart stands still until it may go on.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := make(chan struct{})
		source := opened(past()).Source(history.SourceOptions{
			Resource: "pods", At: at(10), Onward: true, Speed: 60, Start: start,
		})
		watch, err := source.Watch(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		began := time.Now()
		time.AfterFunc(time.Hour, func() { close(start) })
		if batch, err := watch.Next(); err != nil || len(batch.Changes) != 1 || time.Since(began) != time.Hour+time.Second {
			t.Errorf("%+v after %v, %v", batch, time.Since(began), err)
		}
		other, cancel := context.WithCancel(t.Context())
		cancel()
		source = opened(past()).Source(history.SourceOptions{Resource: "pods", At: at(10),
			Start: make(chan struct{})})
		if watch, err = source.Watch(other, 10); err == nil {
			_, err = watch.Next()
		}
		if err == nil {
			t.Error("a watch that has ended delivers something")
		}
	})
}

// TestStill stays at its moment, and refuses what a source of one moment cannot show.
func TestStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := opened(past()).Source(history.SourceOptions{Resource: "pods", At: at(12)})
		kind := func(err error) keepwatch.FailureKind {
			failure, _ := errors.AsType[*keepwatch.Failure](err)
			if failure == nil {
				t.Fatalf("%v", err)
			}
			return failure.Kind
		}
		_, err := source.List(t.Context(), keepwatch.ListRequest{Continue: "x"})
		if kind(err) != keepwatch.Rejected {
			t.Error(err)
		}
		if _, err = source.List(t.Context(), keepwatch.ListRequest{NotOlderThan: 13}); kind(err) != keepwatch.Rewound {
			t.Error(err)
		}
		if _, err = source.Watch(t.Context(), 13); kind(err) != keepwatch.Rewound {
			t.Error(err)
		}
		if _, _, err = source.StreamList(t.Context(), 0, nil); kind(err) != keepwatch.StreamingListUnsupported {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		watch, err := source.Watch(ctx, 12)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = watch.Next(); kind(err) != keepwatch.Ended {
			t.Error(err)
		}
		if newest, err := source.Newest(t.Context()); err != nil || newest != 12 {
			t.Errorf("%d, %v", newest, err)
		}
	})
}
