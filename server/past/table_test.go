package past

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// restored is a history of a definition in a cluster that was restored from a backup: the epoch 1 has other columns.
type restored struct{ lagging }

func (r restored) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(r) }

func (restored) Status(context.Context) (all []sink.Status, err error) {
	for _, resource := range []string{definitions, "widgets.example.com"} {
		all = append(all, sink.Status{
			ID: stream.Identity{Resource: resource}, Active: true, First: sink.Point{Revision: 10},
			Progress: sink.Progress{Epoch: 1, Cursor: 40, Since: 5},
		})
	}
	return all, nil
}

func (restored) States(_ context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	state := func(column string) sink.State {
		return sink.State{Resource: definitions, Key: keepwatch.Key{Name: "widgets.example.com"}, Object: fmt.Appendf(nil,
			`{"spec":{"versions":[{"name":"v1","additionalPrinterColumns":[{"name":%q,"type":"string","jsonPath":".spec.a"}]}]}}`, column)}
	}
	former, present := state("Former"), state("Present")
	former.From, former.To, present.From = sink.Point{Revision: 10}, &sink.Point{Epoch: 1, Revision: 5},
		sink.Point{Epoch: 1, Revision: 5}
	return selected([]sink.State{former, present}, q, yield)
}

// The columns of custom resources are those of the definition at the point, also in an earlier epoch.
func TestColumnsOfAnEpoch(t *testing.T) {
	all, err := newTables()
	if err != nil {
		t.Fatal(err)
	}
	err = history.New(restored{}, history.Options{}).View(t.Context(), func(v *history.View) error {
		for epoch, want := range []string{"Former", "Present"} {
			of := &resolved{
				typ:   history.Type{Resource: "widgets.example.com", Type: sink.Type{Version: "v1", Kind: "Widget"}},
				point: sink.Point{Epoch: epoch, Revision: 20},
			}
			of.format = all.format(of.typ)
			if source, err := all.source(t.Context(), v, of); err != nil || !strings.Contains(string(source), want) {
				t.Errorf("epoch %d: %s, %v, want %s", epoch, source, err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
