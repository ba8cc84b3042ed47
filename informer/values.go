package informer

import (
	"iter"
	"slices"

	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

// plain has for each segment the values in it, so that a list of everything is a
// few copies; nil where one is rejected or packed, and has to be looked at.
var plain = store.NewMemo(func(s store.Segment) []any {
	values := make([]any, 0, s.Len())
	for o := range s.All() {
		value, ok := o.(*item.Item).Plain()
		if !ok {
			return nil
		}
		values = append(values, value)
	}
	return values
})

// values are the objects in segments that may be shown; about is how many there
// may be.
func values(segments iter.Seq[store.Segment], about int) []any {
	all := make([]any, 0, about)
	for s := range segments {
		if known := plain.Of(s); known != nil {
			all = append(all, known...)
			continue
		}
		for o := range s.All() {
			if i := shown(o); i != nil {
				all = append(all, i.Value())
			}
		}
	}
	return slices.Clip(all)
}
