package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/history"
)

// A pipe, such as a shell's >(command), is refused as a kubeconfig: a read of its former content would
// wait for ever.
func TestKubeconfigIntoPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	const refused = "not a regular file"
	code, _, stderr := execute(t, "serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", path)
	if code != 1 || !strings.Contains(stderr, refused) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("serve: exit %d: %s", code, stderr)
	}
	for command, err := range map[string]error{
		"proxy and faults": cluster.WriteKubeconfig(path, "keepwatch", &rest.Config{Host: "https://127.0.0.1:1"}),
		"serve --history":  history.WriteKubeconfig(path, "https://127.0.0.1:1", nil, "token"),
	} {
		if err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("%s: %v", command, err)
		}
	}
}
