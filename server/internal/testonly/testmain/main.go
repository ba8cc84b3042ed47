// Package testmain runs the tests of a package beside one API server. Package testserver runs a server for one test: it
// reports to a testing.TB, which a TestMain does not have.
package testmain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// Run starts a server without controllers, calls prepare with its configuration, which has no limit on the rate of
// requests, and runs the tests. It returns the exit code of the process: it is not 0 if a test fails, if the server
// ends with an error, or if a goroutine is left.
func Run(m *testing.M, prepare func(context.Context, *rest.Config) error) int {
	klog.SetLogger(logr.Discard())
	ignore := []goleak.Option{
		goleak.IgnoreCurrent(),
		// A timer of the server's watch cache: each read at a revision leaves one for 3 seconds.
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
	}
	code, err := run(m, prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return await.Goroutines(code, ignore...)
}

func run(m *testing.M, prepare func(context.Context, *rest.Config) error) (code int, err error) {
	server, err := controlplane.New(controlplane.Options{})
	if err != nil {
		return 1, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		cancel()
		if end := <-ended; end != nil {
			err = errors.Join(err, fmt.Errorf("the server ended with: %w", end))
		}
	}()
	select {
	case <-server.Ready():
	case end := <-ended:
		ended <- end
		return 1, errors.New("the server did not start")
	}
	config := rest.CopyConfig(server.RESTConfig())
	config.QPS = -1
	if err := prepare(ctx, config); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
