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
		for !inf.HasSynced() {
			select {
			case <-time.After(time.Millisecond):
			case <-t.Context().Done(): // in a synctest bubble, which must not have it at its end
				return
			}
		}
	}()
	return synced
}
