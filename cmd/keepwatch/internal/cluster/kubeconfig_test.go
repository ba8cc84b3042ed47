package cluster

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A token is not written into a file that another user has opened, or has linked elsewhere.
func TestKubeconfigIsPrivate(t *testing.T) {
	dir := t.TempDir()
	theirs, file := filepath.Join(dir, "theirs"), filepath.Join(dir, "kubeconfig")
	if err := errors.Join(os.WriteFile(theirs, nil, 0o666), os.Symlink(theirs, file)); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for _, token := range []string{"first", "second"} {
		if err := WriteKubeconfig(file, "faults", &rest.Config{Host: "https://127.0.0.1:1", BearerToken: token}); err != nil {
			t.Fatal(err)
		}
		if got, err := clientcmd.BuildConfigFromFlags("", file); err != nil || got.BearerToken != token {
			t.Errorf("the kubeconfig: %v, %v", got, err)
		}
	}
	if text, err := io.ReadAll(opened); len(text) > 0 || err != nil {
		t.Errorf("who had opened the file reads %q, %v", text, err)
	}
}

// What is not a kubeconfig of the command is not replaced.
func TestKubeconfigOfOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	for _, text := range []string{"no kubeconfig", "clusters: [{name: production}]",
		"clusters: [{name: faults}, {name: production}]"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := WriteKubeconfig(file, "faults", &rest.Config{Host: "https://127.0.0.1:1", BearerToken: "token"})
		if err == nil || !strings.HasSuffix(err.Error(), "it was not changed, give another file with --kubeconfig-out") {
			t.Errorf("got %v", err)
		}
		if after, err := os.ReadFile(file); string(after) != text || err != nil {
			t.Errorf("%q became %q, %v", text, after, err)
		}
	}
}
