package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const moduleTest = `package try

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/server/testserver"
)

func TestNamespaces(t *testing.T) {
	srv := testserver.New(t)
	c, err := kubernetes.NewForConfig(srv.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Namespaces().Get(t.Context(), "kube-public", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}
`

// An empty module that gets testserver, as docs/testing.md does it, has a test that passes.
func TestEmptyModule(t *testing.T) {
	keepwatch, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "try_test.go"), []byte(moduleTest), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"mod", "init", "example.com/try"},
		{"mod", "edit", "-replace", "github.com/keepwatch/keepwatch=" + keepwatch, "-replace",
			"github.com/keepwatch/keepwatch/server=" + filepath.Join(keepwatch, "server")},
		{"mod", "tidy"},
		{"test", "./..."},
	} {
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
}
