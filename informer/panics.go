package informer

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// panicPolicy says what a panic in a handler leads to.
type panicPolicy struct {
	crash bool
	count *atomic.Uint64
}

// guard is deferred around a callback. The panic of one handler must not take
// down the others, nor the process: it is reported with its stack, and is an
// error.
func (p panicPolicy) guard(react reaction, err *error) {
	if p.crash {
		return
	}
	if value := recover(); value != nil {
		p.count.Add(1)
		*err = panicked(value, "An informer's handler panicked", "handler", fmt.Sprintf("%T", react))
	}
}

// panicked is the error that a recovered panic is taken for. It is reported with its
// stack, which says more than the error.
func panicked(value any, message string, about ...any) error {
	err := fmt.Errorf("panic: %v", value)
	utilruntime.HandleErrorWithContext(context.Background(), err, message, append(about, "stack", string(debug.Stack()))...)
	return err
}
