package podtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// Eventually waits until condition is true. At the deadline the test fails with message.
func Eventually(t *testing.T, condition func() bool, message func() string) {
	t.Helper()
	await.True(t, "the informer is in the state that the test waits for", condition, message)
}

// Run runs a shared informer until the end of the test, or until stop is called. stop waits
// until the informer has returned.
func Run(t *testing.T, inf interface{ RunWithContext(context.Context) }) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		inf.RunWithContext(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// RunTyped is Run for a typed informer. stop returns the error of the informer.
func RunTyped(t *testing.T, inf interface{ Run(context.Context) error }) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var err error
	go func() {
		defer close(ended)
		err = inf.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-ended
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// WaitForSync waits until informers or handlers have synced.
func WaitForSync(t *testing.T, synced ...interface{ HasSynced() bool }) {
	t.Helper()
	for _, s := range synced {
		Eventually(t, s.HasSynced, func() string { return fmt.Sprintf("%T has not synced", s) })
	}
}
