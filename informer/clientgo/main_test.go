package clientgo_test

import (
	"io"
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // the tests cause the errors that are reported there
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(await.Tests(m))
}
