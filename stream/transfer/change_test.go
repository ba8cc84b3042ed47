package transfer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// thing is an object of a table.
type thing struct {
	name     string
	revision keepwatch.Revision
}

func (o thing) Key() keepwatch.Key           { return keepwatch.Key{Name: o.name} }
func (o thing) UID() keepwatch.UID           { return keepwatch.UID(o.name) }
func (o thing) Revision() keepwatch.Revision { return o.revision }
func (o thing) JSON() []byte                 { return fmt.Appendf(nil, `{"name":%q}`, o.name) }
func (o thing) Metadata() []byte             { return o.JSON() }

// table is a source that lists its objects at a revision, and then confirms it.
type table struct {
	revision keepwatch.Revision
	objects  []keepwatch.Object
	held     chan struct{} // its lists wait until it is closed, unless it is nil
}

func (s *table) List(context.Context, keepwatch.ListRequest) (keepwatch.Page, error) {
	if s.held != nil {
		<-s.held
	}
	return keepwatch.Page{Revision: s.revision, Objects: s.objects}, nil
}

func (*table) Unchanged(context.Context, keepwatch.Revision, keepwatch.Revision) error { return nil }

func (s *table) StreamList(context.Context, keepwatch.Revision,
	func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return 0, nil, keepwatch.Failed(keepwatch.StreamingListUnsupported, "lists only")
}

func (s *table) Newest(context.Context) (keepwatch.Revision, error) { return s.revision, nil }

func (s *table) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	return &quiet{ctx: ctx, batch: keepwatch.Batch{From: from, To: s.revision}}, nil
}

// quiet is a watch that delivers a bookmark, and then nothing.
type quiet struct {
	ctx   context.Context
	batch keepwatch.Batch
	sent  bool
}

func (w *quiet) Next() (keepwatch.Batch, error) {
	if !w.sent {
		w.sent = true
		return w.batch, nil
	}
	<-w.ctx.Done()
	return keepwatch.Batch{}, keepwatch.Failed(keepwatch.Ended, "done")
}

func (w *quiet) Close() {}

// transcript is a sink that records the messages, and has the streams of all sessions.
type transcript struct {
	mu      sync.Mutex
	lines   []string
	states  map[string]stream.State
	streams []sink.Stream
	opened  int
}

func (s *transcript) Open(_ context.Context, streams []sink.Stream) (all []sink.Stored, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = streams
	s.opened++
	for _, wanted := range streams {
		if s.states[wanted.ID.Resource] == nil {
			s.states[wanted.ID.Resource] = stream.InMemory()
		}
		stored := sink.Stored{State: s.states[wanted.ID.Resource]}
		if _, objects := stream.Committed(stored.State); objects > 0 {
			stored.Progress = sink.Progress{Cursor: 1, Since: 1}
		}
		all = append(all, stored)
	}
	return all, nil
}

func (s *transcript) Write(_ context.Context, batch sink.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range batch.Pieces {
		for _, m := range p.Messages {
			line := s.streams[p.Stream].ID.Resource + " "
			switch m := m.(type) {
			case stream.Event:
				line += fmt.Sprint(m.Type, " ", m.Object.Key().Name)
			case stream.Gap:
				line += fmt.Sprint("GAP ", m.To, " ", m.Reason)
			case stream.Synced:
				line += fmt.Sprint("SYNCED ", m.Revision)
			}
			s.lines = append(s.lines, line)
		}
	}
	return nil
}

func (s *transcript) Close() error { return nil }

// written returns what was written since the last call, in order of the resources. A Synced that another session has
// repeated is there once.
func (s *transcript) written() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := slices.Clone(s.lines)
	s.lines = nil
	slices.SortStableFunc(lines, func(a, b string) int {
		return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0])
	})
	return strings.Join(slices.Compact(lines), ", ")
}

// TestChange adds resources to a transfer that runs, and ends others.
func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := func(name string, revision keepwatch.Revision, objects ...string) transfer.Resource {
			s := &table{revision: revision}
			for _, o := range objects {
				s.objects = append(s.objects, thing{o, revision})
			}
			return transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: name}}, Source: s}
		}
		gone := func(name string, at keepwatch.Revision) transfer.Resource {
			return transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: name}}, Gone: at}
		}
		s := &transcript{states: map[string]stream.State{}}
		var opened []string
		tr := transfer.New(s, []transfer.Resource{resource("a", 10, "a1")}, transfer.Options{
			Opened: func(resources []transfer.Resource) {
				var names []string
				for _, r := range resources {
					names = append(names, r.ID.Resource)
				}
				opened = append(opened, strings.Join(names, " "))
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- tr.Run(ctx) }()
		step := func(name, want string, complete bool, sessions ...string) {
			t.Helper()
			time.Sleep(time.Hour) // each change is the first one in a while
			synctest.Wait()
			if got := s.written(); got != want {
				t.Errorf("%s: written %q, want %q", name, got, want)
			}
			if !slices.Equal(opened, sessions) {
				t.Errorf("%s: sessions %q, want %q", name, opened, sessions)
			}
			if got := tr.Status().Complete(); got != complete {
				t.Errorf("%s: complete is %v", name, got)
			}
			opened = nil
		}
		step("the first", "a ADDED a1, a SYNCED 10", true, "a")
		b := resource("b", 10, "b1")
		held := make(chan struct{})
		b.Source.(*table).held = held
		tr.Change([]transfer.Resource{b, resource("c", 10)})
		if tr.Status().Complete() {
			t.Error("complete before the new resources are")
		}
		close(held)
		step("two join", "a SYNCED 10, b ADDED b1, b SYNCED 10, c SYNCED 10", true, "a b c")
		tr.Change([]transfer.Resource{gone("b", 12), gone("c", 12)})
		step("both leave", "a SYNCED 10, b GAP 12 expired, b DELETED b1, b SYNCED 12", true, "a b c", "a")
		tr.Change([]transfer.Resource{resource("b", 20, "b1"), resource("c", 20, "c1")})
		step("both return",
			"a SYNCED 10, b GAP 20 expired, b ADDED b1, b SYNCED 20, c GAP 20 expired, c ADDED c1, c SYNCED 20", false, "a b c")
		tr.Change([]transfer.Resource{gone("b", 22), gone("c", 22)})
		step("both leave again",
			"a SYNCED 10, b GAP 22 expired, b DELETED b1, b SYNCED 22, c GAP 22 expired, c DELETED c1, c SYNCED 22", true,
			"a b c", "a")
		tr.Change([]transfer.Resource{gone("d", 12)})
		step("one leaves that never was", "a SYNCED 10", true, "a d", "a")
		tr.Change([]transfer.Resource{gone("a", 14)})
		step("the last one leaves", "a GAP 14 expired, a DELETED a1, a SYNCED 14", true, "a", "")
		tr.Change([]transfer.Resource{gone("e", 15), resource("e", 15, "e1")})
		step("one that is back", "e ADDED e1, e SYNCED 15", true, "e")
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Error(err)
		}
	})
}

// TestChangesWithoutEnd changes a resource each second, as a server does whose discovery shows a type now and then: the
// sink is opened rarely, and stores the other ones meanwhile. The last change counts.
func TestChangesWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &transcript{states: map[string]stream.State{}}
		resource := func(name string) transfer.Resource {
			return transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: name}}, Source: &table{revision: 10}}
		}
		tr := transfer.New(s, []transfer.Resource{resource("a")}, transfer.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- tr.Run(ctx) }()
		synctest.Wait()
		for n := range 5 {
			tr.Change([]transfer.Resource{resource(fmt.Sprint("b", n))})
			if synctest.Wait(); s.opened != n+2 {
				t.Errorf("after %d changes it was opened %d times", n+1, s.opened)
			}
		}
		before := s.opened
		for range 3600 {
			tr.Change([]transfer.Resource{resource("c")})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := s.opened - before; n > 3600/15*2+20 || n < 10 { // half of 30 s on average
			t.Errorf("in an hour it was opened %d times", n)
		}
		tr.Change([]transfer.Resource{resource("d")})
		time.Sleep(time.Minute)
		synctest.Wait()
		if !tr.Status().Complete() || len(s.streams) != 8 {
			t.Errorf("in the end it has %d streams, complete: %v", len(s.streams), tr.Status().Complete())
		}
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Error(err)
		}
	})
}
