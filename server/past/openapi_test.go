package past

import (
	"context"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// damaged is a history in which one of two definitions of a group cannot be decoded.
type damaged struct{ restored }

func (d damaged) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(d) }

func (damaged) States(_ context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	at := sink.Point{Epoch: 1, Revision: 20}
	return selected([]sink.State{
		{Resource: definitions, Key: keepwatch.Key{Name: "widgets.example.com"}, From: at, Object: []byte(`{"spec":[]}`)},
		{Resource: definitions, Key: keepwatch.Key{Name: "gadgets.example.com"}, From: at,
			Object: []byte(`{"metadata":{"name":"gadgets.example.com"},"spec":{"versions":[{"name":"v1"}]}}`)},
	}, q, yield)
}

// TestDamagedDefinition shows the other types of the group, and the type itself without its columns.
func TestDamagedDefinition(t *testing.T) {
	typeOf := func(resource string) history.Type {
		return history.Type{Resource: resource, Type: sink.Type{Version: "v1", Kind: "Kind"}}
	}
	all, err := newTables()
	if err != nil {
		t.Fatal(err)
	}
	err = history.New(damaged{}, history.Options{}).View(t.Context(), func(v *history.View) error {
		types := []history.Type{typeOf("widgets.example.com"), typeOf("gadgets.example.com")}
		found, err := definitionsOf(t.Context(), v, history.Moment{Revision: 30}, types)
		if err != nil || len(found) != 1 || found[0].Name != "gadgets.example.com" {
			t.Errorf("%v, %v", found, err)
		}
		of := &resolved{typ: types[0], point: sink.Point{Epoch: 1, Revision: 30}}
		of.format = all.format(of.typ)
		if source, err := all.source(t.Context(), v, of); err != nil || source != "" {
			t.Errorf("%s, %v", source, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
