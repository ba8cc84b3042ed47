package readpath

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(await.Tests(m))
}
