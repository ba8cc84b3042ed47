package follow

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// panicPolicy is the consequence of a panic in a handler.
type panicPolicy struct {
	crash bool
	count *atomic.Uint64
}

// guard is deferred around a callback. Unless crash is set, it recovers a panic, reports it
// with its stack, and returns it as an error: a panic of one handler must end neither the
// others nor the process.
func (p panicPolicy) guard(callbacks Callbacks, err *error) {
	if p.crash {
		return
	}
	if value := recover(); value != nil {
		p.count.Add(1)
		*err = reportPanic(value, "An informer's handler panicked", "handler", fmt.Sprintf("%T", callbacks))
	}
}

// reportPanic reports a recovered panic with its stack, and returns it as an error.
func reportPanic(value any, message string, keysAndValues ...any) error {
	err := fmt.Errorf("panic: %v", value)
	utilruntime.HandleErrorWithContext(context.Background(), err, message, append(keysAndValues, "stack",
		string(debug.Stack()))...)
	return err
}
