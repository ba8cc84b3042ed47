// Package pause waits for a time, unless a context is done before.
package pause

import (
	"context"
	"time"
)

// For waits for d, and returns nil. It returns the cause of ctx as soon as that is done.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
