package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

// A server that is named may be localhost:8080.
func TestNamedCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`apiVersion: v1
kind: Config
current-context: a
contexts:
- {name: a, context: {cluster: a}}
clusters:
- {name: a, cluster: {server: "http://localhost:8080"}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--kubeconfig", file}, {"--server", "http://localhost:8080"}} {
		o := NewFlags()
		for i := 0; i < len(flags); i += 2 {
			switch flags[i] {
			case "--kubeconfig":
				*o.Config.KubeConfig = flags[i+1]
			case "--server":
				*o.Config.APIServer = flags[i+1]
			}
		}
		if config, err := Connection(o.Config); err != nil || config.Host != "http://localhost:8080" {
			t.Errorf("%v: %v, %v", flags, config, err)
		}
	}
}
