package follow

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// Source is the source of a follower. Its objects are *item.Item.
type Source interface {
	keepwatch.Source
	// Resource returns the resource that is read, empty if it is not known. It may be called
	// at any time after the first list.
	Resource() schema.GroupVersionResource
	// ResourceVersion returns the server's resource version of a revision that the source
	// returned.
	ResourceVersion(keepwatch.Revision) string
	// ListAt reads the state at exactly one revision; see kube.Source. It may be called at
	// any time after the first list.
	ListAt(ctx context.Context, revision keepwatch.Revision, emit func([]keepwatch.Object) error) error
}
