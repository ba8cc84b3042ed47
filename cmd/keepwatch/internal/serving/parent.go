package serving

import (
	"context"
	"os"
	"time"
)

// parentInterval is the time between two looks at the parent.
const parentInterval = 250 * time.Millisecond

// WithParent returns a context that is also done soon after the process that started this one has ended: a test that
// panics, is killed or times out does not stop its servers. A process that init started has no such parent.
//
// The kernel can send a signal at the end of the parent, but does so at the end of the thread that started the child;
// in a Java test that is any thread of a pool.
func WithParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	if parent <= 1 {
		return ctx, cancel
	}
	go func() {
		look := time.NewTicker(parentInterval)
		defer look.Stop()
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
		}
		cancel()
	}()
	return ctx, cancel
}
