package messages

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

// clientMistakes are the prefixes of reports about invalid requests, to which the clients received
// error responses. The Kubernetes libraries log some of them as errors; the others are from net/http
// and golang.org/x/net/http2.
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

// clientErrors are parts of reports about invalid requests that the libraries answer with 500, and
// report for that reason: an apply of an unknown field, or a watch from an invalid revision.
var clientErrors = []string{": failed to create typed patch object (", ": resourceVersion: Invalid value: "}

// isClientMistake reports whether a line of the log is about an invalid request.
func isClientMistake(line string) bool {
	if strings.HasPrefix(line, "apiserver received an error that is not an metav1.Status: ") {
		return slices.ContainsFunc(clientErrors, func(part string) bool { return strings.Contains(line, part) })
	}
	return slices.ContainsFunc(clientMistakes, func(prefix string) bool { return strings.HasPrefix(line, prefix) })
}

// FilterStderr makes os.Stderr write to out, without reports about invalid requests, until restore is called. The HTTP
// server of k8s.io/apiserver logs to os.Stderr; its log cannot be configured.
func FilterStderr(out io.Writer) (restore func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	original := os.Stderr
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
		os.Stderr = original
		w.Close()
		<-done
		r.Close()
	}, nil
}

// HideClientDisconnects removes reports about disconnected clients from the log of the Kubernetes
// libraries: a client that disconnects during a watch, or before the response, is not an error of the
// server.
//
// Such reports are harmless. The server cancels a request when its client disconnects. A handler that
// still writes the response gets http.ErrHandlerTimeout and ends; the server waits for it.
var HideClientDisconnects = sync.OnceFunc(func() {
	utilruntime.ErrorHandlers[0] = withoutClientDisconnects(utilruntime.ErrorHandlers[0])
})

func withoutClientDisconnects(log utilruntime.ErrorHandler) utilruntime.ErrorHandler {
	return func(ctx context.Context, err error, message string, keysAndValues ...any) {
		if !causedByClient(ctx, err) {
			log(ctx, err, message, keysAndValues...)
		}
	}
}

// causedByClient reports whether the cause of an error, in the context of a request, is a disconnected
// client or an invalid request. A request that exceeds its deadline is neither, and is logged.
func causedByClient(ctx context.Context, err error) bool {
	return errors.Is(ctx.Err(), context.Canceled) || err != nil && (isUnwrittenResponse(err.Error()) ||
		isClientMistake(err.Error()))
}

// isUnwrittenResponse recognizes reports of the code that writes responses by their text: they have no
// context of the request, and most have no error.
func isUnwrittenResponse(report string) bool {
	if !strings.HasPrefix(report, "apiserver was unable to ") &&
		!strings.HasPrefix(report, "apiserver received an error ") {
		return false
	}
	for _, err := range disconnectErrors {
		if strings.HasSuffix(report, ": "+err.Error()) {
			return true
		}
	}
	return false
}

// disconnectErrors are the errors of writing to a client that has disconnected.
var disconnectErrors = []error{
	http.ErrHandlerTimeout,
	context.Canceled,
	os.NewSyscallError("write", syscall.EPIPE),
	os.NewSyscallError("write", syscall.ECONNRESET),
	// Two unexported errors of golang.org/x/net/http2.
	errors.New("client disconnected"),
	errors.New("http2: stream closed"),
}
