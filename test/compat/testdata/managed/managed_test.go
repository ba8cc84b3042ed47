package managed

import (
	"os"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestOperators(t *testing.T) {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	Operators(t, cfg)
}
