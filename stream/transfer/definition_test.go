package transfer_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// redefinedTable is a table whose definition changes once, behind its first watch. A list that begins forgets the
// change, as that of source/kube does.
type redefinedTable struct {
	table
	mu         sync.Mutex
	shown, now string
	watches    int
}

func (s *redefinedTable) List(ctx context.Context, r keepwatch.ListRequest) (keepwatch.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = s.now
	return s.table.List(ctx, r)
}

func (s *redefinedTable) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches++; s.watches == 1 {
		s.now = "2"
	}
	if s.shown != s.now {
		return nil, keepwatch.Failed(keepwatch.Redefined, "another definition")
	}
	return s.table.Watch(ctx, from)
}

func (s *redefinedTable) Definition() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown
}

func (s *redefinedTable) SetDefinition(definition string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if definition != "" {
		s.shown = definition
	}
}

// interrupted is a sink that is unavailable once, when the list has been read that shows a changed definition.
type interrupted struct {
	*transcript
	source *redefinedTable
	failed bool
}

func (s *interrupted) Write(ctx context.Context, batch sink.Batch) error {
	if s.source.Definition() == "2" && !s.failed {
		s.failed = true
		return sink.Unavailablef("unavailable once")
	}
	return s.transcript.Write(ctx, batch)
}

// A list that shows a changed definition is read again if the sink did not store it: no watch shows the change.
func TestRedefinedWhileUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &redefinedTable{table: table{revision: 1, objects: []keepwatch.Object{thing{"a", 1}}}, now: "1"}
		into := &interrupted{transcript: &transcript{states: map[string]stream.State{}}, source: source}
		resource := transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: "things"}}, Source: source}
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { _ = transfer.New(into, []transfer.Resource{resource}, transfer.Options{}).Run(ctx) })
		time.Sleep(time.Minute) // of the bubble's clock: longer than all waits
		synctest.Wait()
		cancel()
		ended.Wait()
		if got, want := into.written(),
			"things ADDED a, things SYNCED 1, things GAP 1 downtime, things SYNCED 1"; got != want {
			t.Errorf("written %q, want %q", got, want)
		}
	})
}
