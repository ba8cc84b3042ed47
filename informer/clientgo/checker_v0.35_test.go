//go:build k8s_v0.35

package clientgo_test

import (
	"time"

	"k8s.io/client-go/tools/cache"
)

// syncedOf returns a channel that is closed once an informer has synced.
func syncedOf(inf cache.SharedIndexInformer) <-chan struct{} {
	synced := make(chan struct{})
	go func() {
		for !inf.HasSynced() {
			time.Sleep(time.Millisecond)
		}
		close(synced)
	}()
	return synced
}
