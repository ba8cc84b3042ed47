package clientgo

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// What client-go's tests of its shared informer use, for clientgo's.

func NewSharedInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration) cache.SharedInformer {
	return NewSharedIndexInformer(lw, example, resync, cache.Indexers{})
}

func eventHandlerCount(i cache.SharedInformer) int { return i.(*Shared).follower.CountHandlers() }

func isStarted(i cache.SharedInformer) bool { return i.(*Shared).follower.Started() }

func isRegistered(i cache.SharedInformer, h cache.ResourceEventHandlerRegistration) bool {
	return i.(*Shared).follower.HasHandler(h.(*registration).handler)
}

// sharedProcessorRunHook delays the start of client-go's handlers.
var sharedProcessorRunHook atomic.Pointer[func()]
