package conform_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/controlplane"
)

// api is the server of all tests.
var api *rest.Config

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	klog.SetLogger(logr.Discard())
	server, err := controlplane.New(controlplane.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	select {
	case <-server.Ready():
	case err := <-ended:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	api = server.RESTConfig()
	code := m.Run()
	stop()
	if err := <-ended; err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if left := goroutines(); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, left)
		return 1
	}
	return code
}

// goroutines returns the stacks of the package's goroutines that do not end. The server's own are not
// the package's: k8s.io/apiextensions-apiserver closes the storage of a deleted definition minutes later.
func goroutines() string {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stacks := make([]byte, 4<<20)
		left := ""
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "keepwatch/conform.") {
				left += stack + "\n\n"
			}
		}
		if left == "" || time.Now().After(deadline) {
			return left
		}
	}
}
