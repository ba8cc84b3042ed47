package apiserver

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// An informer that never synchronizes holds up requests for startTimeout; a server that ends starts nothing.
func TestStartEnds(t *testing.T) {
	never := func(stop <-chan struct{}) map[reflect.Type]bool { <-stop; return nil }
	atOnce := func(<-chan struct{}) map[reflect.Type]bool { return nil }
	for name, c := range map[string]struct {
		wait   func(<-chan struct{}) map[reflect.Type]bool
		ends   time.Duration // of the server
		closed bool
		after  time.Duration
	}{
		"synchronized":       {atOnce, time.Hour, true, 0},
		"never synchronized": {never, time.Hour, true, startTimeout},
		"the server ends":    {never, time.Minute, false, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ends)
				defer cancel()
				began, started := time.Now(), make(chan struct{})
				closeStarted(ctx, c.wait, started)
				closed := false
				select {
				case <-started:
					closed = true
				default:
				}
				if closed != c.closed || time.Since(began) != c.after {
					t.Errorf("closed %v after %v, want %v after %v", closed, time.Since(began), c.closed, c.after)
				}
			})
		})
	}
}
