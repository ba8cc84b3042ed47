package follow

import (
	"context"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

const unindexed = "An object is missing from an index"

// IndexFunc returns an index function for a store. If f fails or panics for an object, this
// is reported, and the object is missing from the index.
func IndexFunc(name string, f func(any) ([]string, error)) store.IndexFunc {
	return func(o keepwatch.Object) (values []string) {
		i := o.(*item.Item)
		if i.Err() != nil {
			return nil
		}
		defer func() {
			if value := recover(); value != nil {
				values = nil
				_ = reportPanic(value, unindexed, "index", name, "object", o.Key().String())
			}
		}()
		values, err := f(i.Value())
		if err != nil {
			utilruntime.HandleErrorWithContext(context.Background(), err, unindexed, "index", name, "object", o.Key().String())
			return nil
		}
		return values
	}
}
