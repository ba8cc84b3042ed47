//go:build k8s_v0.35

package clientgo_test

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
)

// syncedOf returns a channel that is closed once an informer has synced.
func syncedOf(t *testing.T, inf cache.SharedIndexInformer) <-chan struct{} {
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		for !inf.HasSynced() && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	return synced
}
