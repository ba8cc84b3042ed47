package testserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// TestLogs checks what klog prints: warnings, and everything with -v.
func TestLogs(t *testing.T) {
	klog.ClearLogger()
	defer klog.SetLogger(logr.Discard())
	printed := func() string {
		t.Helper()
		file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		defer func(stderr *os.File) { os.Stderr = stderr }(os.Stderr)
		os.Stderr = file
		printVerbose()
		klog.InfoDepth(0, "information")
		klog.WarningDepth(0, "a warning")
		klog.Flush()
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if text := printed(); strings.Contains(text, "information") || !strings.Contains(text, "a warning") {
		t.Errorf("without -v klog prints %q", text)
	}
	setKlog("v", "1")
	defer setKlog("stderrthreshold", "WARNING")
	defer setKlog("v", "0")
	if text := printed(); !strings.Contains(text, "information") || !strings.Contains(text, "a warning") {
		t.Errorf("with -v=1 klog prints %q", text)
	}
}
