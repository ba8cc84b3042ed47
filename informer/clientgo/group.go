package clientgo

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/health"
)

// Group makes informers with common options, and reports their health and their metrics
// while they run. It reports on informers that other code makes and owns, like a manager's
// cache:
//
//	group := clientgo.NewGroup()
//	manager.New(cfg, manager.Options{Cache: cache.Options{NewInformer: group.NewSharedIndexInformer}})
//	metrics.Registry.MustRegister(group)
//	mgr.AddHealthzCheck("informers", group.Check)
//
// Its methods may be called from any goroutine.
type Group struct {
	// Group has the running informers as members. Typed informers can be members as well:
	// see informer.InGroup.
	*health.Group
	settings settings
}

// NewGroup returns a group without informers.
func NewGroup(options ...Option) *Group {
	return &Group{Group: health.NewGroup(), settings: apply(options)}
}

// NewSharedIndexInformer returns an informer of the group; see the function of the same
// name.
func (g *Group) NewSharedIndexInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers cache.Indexers) cache.SharedIndexInformer {
	return newShared(lw, example, resync, indexers, g)
}
