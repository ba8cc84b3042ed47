package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// clientMistakes are the beginnings of reports about clients' mistakes, which the clients received as answers. The libraries log
// the first ones as errors; the others are golang.org/x/net/http2's of what is no HTTP/2.
var clientMistakes = []string{
	"Couldn't parse request",
	"Error - invalid timeout specified in the request URL",
	"http2: server connection error from ",
	"http2: server: error reading preface from client ",
	"http2: server closing client connection: ",
	"http: URL query contains semicolon",
	"timeout waiting for SETTINGS frames from ",
	"failed to create RequestInfo: ",
}

// clientErrors are what the libraries answer with 500, and report therefore, though a client is wrong:
// an apply of an unknown field, or a watch from a revision that is none.
var clientErrors = []string{": failed to create typed patch object (", ": resourceVersion: Invalid value: "}

// isClientMistake reports whether a line of the log is about what a client did wrong.
func isClientMistake(line string) bool {
	if strings.HasPrefix(line, "apiserver received an error that is not an metav1.Status: ") {
		return slices.ContainsFunc(clientErrors, func(part string) bool { return strings.Contains(line, part) })
	}
	return slices.ContainsFunc(clientMistakes, func(begin string) bool { return strings.HasPrefix(line, begin) })
}

// filterStderr keeps clients' mistakes out of what goes to os.Stderr, until restore is called. The
// library's HTTP server logs there, and to nothing else: the log that it uses can't be set.
func filterStderr() (restore func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out := os.Stderr
	os.Stderr = w
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			if !isClientMistake(line) {
				_, _ = io.WriteString(out, line)
			}
			if err != nil {
				return
			}
		}
	}()
	return func() {
		os.Stderr = out
		w.Close()
		<-done
		r.Close()
	}, nil
}

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

// clientEnded says whether an error, in the context of a request, is there because its client went, or
// was wrong.
// A request that took too long ends by its deadline: that is no client's end, and stays in the log.
func clientEnded(ctx context.Context, err error) bool {
	return errors.Is(ctx.Err(), context.Canceled) || err != nil && (isUnwrittenAnswer(err.Error()) || isClientMistake(err.Error()))
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
