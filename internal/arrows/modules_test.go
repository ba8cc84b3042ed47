package arrows

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// servers are modules that nobody gets by the library: servers, brokers, databases and kubectl.
var servers = []string{
	"k8s.io/apiserver", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator", "k8s.io/kubectl",
	"go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/client/v3", "go.etcd.io/raft/v3",
	"github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go", "github.com/twmb/franz-go",
	"github.com/jackc/pgx/v5", "modernc.org/sqlite",
	module + "/sinks", module + "/server", module + "/cmd/keepwatch",
}

// TestLibraryGraph fails if the module graph of the library, which becomes a part of every user's, has a server.
func TestLibraryGraph(t *testing.T) {
	command := exec.CommandContext(t.Context(), "go", "mod", "graph")
	command.Dir, command.Env = "../..", append(os.Environ(), "GOWORK=off")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go mod graph: %v", err)
	}
	for _, server := range servers {
		for line := range strings.Lines(string(out)) {
			if from, to, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(to, server+"@") {
				t.Errorf("%s requires %s", from, to)
			}
		}
	}
}

// TestModuleFiles fails if a module that users get has a line in its go.mod that holds for the main module alone.
func TestModuleFiles(t *testing.T) {
	for _, dir := range []string{"", "sinks/", "server/", "cmd/keepwatch/"} {
		text, err := os.ReadFile("../../" + dir + "go.mod")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if word, _, _ := strings.Cut(line, " "); word == "replace" || word == "exclude" {
				t.Errorf("%sgo.mod: a user's go command ignores %q", dir, strings.TrimSpace(line))
			}
		}
	}
}
