package follow

import (
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
)

// TestValuesAreMeasuredBeforeTheyAreShared changes values that handlers have, listed ones, those of events, and the
// results of a transform: the store does not read them any more, so that its sizes stay.
func TestValuesAreMeasuredBeforeTheyAreShared(t *testing.T) {
	for name, transform := range map[string]func(any) (any, error){
		"as read": nil,
		"transformed": func(value any) (any, error) {
			return map[string]any{"of": value}, nil
		},
	} {
		f := New("values", nil, nil, Options{Transform: transform})
		object := func(name string, revision keepwatch.Revision) *item.Item {
			return item.New(keepwatch.Key{Name: name}, "u", revision, map[string]any{"name": name})
		}
		list, err := f.applier.Replace(t.Context(), keepwatch.Relist{})
		if err == nil {
			err = list.Put(t.Context(), []keepwatch.Object{object("listed", 3)})
		}
		if err == nil {
			err = list.Commit(t.Context(), 5)
		}
		if err == nil {
			_, err = f.applier.Apply(t.Context(), keepwatch.Batch{From: 5, To: 7, Changes: []keepwatch.Change{
				{Type: keepwatch.Added, Revision: 7, Object: object("added", 7)}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		for o := range f.store.Snapshot().All() {
			i := o.(*item.Item)
			before := i.Size()
			i.Value().(map[string]any)["more"] = strings.Repeat("x", 10_000)
			if after := i.Size(); after != before {
				t.Errorf("%s, %s: %d bytes, and %d after a change", name, o.Key(), before, after)
			}
		}
		if n := f.store.Snapshot().Len(); n != 2 {
			t.Errorf("%s: %d objects", name, n)
		}
	}
}
