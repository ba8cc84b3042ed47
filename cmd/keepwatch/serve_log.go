package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// hideClientEnds keeps out of the log what the Kubernetes libraries report as errors although it is
// the client's own business: that it hung up during a watch, or didn't wait for an answer.
//
// Such reports are harmless. The server gives up on a request as soon as its client has gone; what
// still works on the answer gets http.ErrHandlerTimeout for its next write, ends, and is waited for.
var hideClientEnds = sync.OnceFunc(func() {
	utilruntime.ErrorHandlers[0] = withoutClientEnds(utilruntime.ErrorHandlers[0])
})

func withoutClientEnds(log utilruntime.ErrorHandler) utilruntime.ErrorHandler {
	return func(ctx context.Context, err error, message string, keysAndValues ...any) {
		if !clientEnded(ctx, err) {
			log(ctx, err, message, keysAndValues...)
		}
	}
}

// clientEnded says whether an error, in the context of a request, is there because its client went.
// A request that took too long ends by its deadline: that is no client's end, and stays in the log.
func clientEnded(ctx context.Context, err error) bool {
	return errors.Is(ctx.Err(), context.Canceled) || err != nil && isUnwrittenAnswer(err.Error())
}

// isUnwrittenAnswer knows the reports of what writes the answers by their words: they come without the
// context of the request, and mostly without the error they are about.
func isUnwrittenAnswer(report string) bool {
	if !strings.HasPrefix(report, "apiserver was unable to ") && !strings.HasPrefix(report, "apiserver received an error ") {
		return false
	}
	for _, end := range clientEnds {
		if strings.HasSuffix(report, ": "+end.Error()) {
			return true
		}
	}
	return false
}

// clientEnds are the errors of writing to a client that has gone.
var clientEnds = []error{
	http.ErrHandlerTimeout,
	context.Canceled,
	os.NewSyscallError("write", syscall.EPIPE),
	os.NewSyscallError("write", syscall.ECONNRESET),
	// Two of golang.org/x/net/http2, which doesn't export them.
	errors.New("client disconnected"),
	errors.New("http2: stream closed"),
}
