package clientgo_test

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // the tests cause the errors that are reported there
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	code := m.Run()
	if code == 0 {
		// A timer of the API server: each read at a revision leaves one for 3 seconds.
		timer := goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2")
		if err := goleak.Find(timer); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}
