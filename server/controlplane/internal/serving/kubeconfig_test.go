package serving

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A token is not written into a file that another user has opened.
func TestKubeconfigIsReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if err := WriteKubeconfig(file, &rest.Config{Host: "https://127.0.0.1:1", BearerToken: "token"}); err != nil {
		t.Fatal(err)
	}
	if got, err := clientcmd.BuildConfigFromFlags("", file); err != nil || got.BearerToken != "token" {
		t.Errorf("the kubeconfig: %v, %v", got, err)
	}
	if text, err := io.ReadAll(opened); len(text) > 0 || err != nil {
		t.Errorf("who had opened the file reads %q, %v", text, err)
	}
}
