package suites

import (
	"fmt"
	"strings"
)

// patch changes a file of a module.
type patch struct {
	module, file string
	edits        []edit
}

// edit replaces a text that occurs once in a file.
type edit struct{ old, new string }

// before inserts a line before the one that begins with a text.
func before(line, inserted string) edit { return edit{"\t" + line, "\t" + inserted + "\n\t" + line} }

// imports adds imports.
func imports(paths ...string) edit {
	all := "import (\n"
	for _, p := range paths {
		all += "\t" + p + "\n"
	}
	return edit{"import (\n", all}
}

const (
	importSuites = `"github.com/keepwatch/keepwatch/kubernetes/suites"`
	importApp    = `"k8s.io/kubernetes/cmd/kube-apiserver/app"`
)

// patches call package suites wherever tests build a server that a suite of ours runs on: kube-apiserver
// with its aggregator, the same without, and the server of CustomResourceDefinitions alone.
var patches = []patch{
	{kubernetesModule, "cmd/kube-apiserver/app/testing/testserver.go", []edit{
		imports(importSuites),
		before("completed, err := config.Complete()", "servers := suites.Wrap(config, config.Options.Etcd)"),
		{"server, err := app.CreateServerChain(completed)", "server, err := servers.CreateServerChain(completed)"},
	}},
	{kubernetesModule, "test/integration/etcd/server.go", []edit{
		imports(importSuites),
		before("completed, err := config.Complete()", "servers := suites.Wrap(config, config.Options.Etcd)"),
		{"kubeAPIServer, err := app.CreateServerChain(completed)",
			"kubeAPIServer, err := servers.CreateServerChain(completed)"},
	}},
	{kubernetesModule, "test/integration/framework/test_server.go", []edit{
		imports(importSuites),
		before("kubeAPIServer, err := kubeAPIServerConfig.Complete()",
			"servers := suites.Wrap(&app.Config{KubeAPIs: kubeAPIServerConfig}, completedOptions.Etcd)"),
		before("errCh = make(chan error)", "servers.AddReaders(kubeAPIServer.ControlPlane.GenericAPIServer)"),
	}},
	{extensionsModule, "pkg/cmd/server/testing/testserver.go", []edit{
		imports(importSuites, importApp),
		before("completedConfig := config.Complete()",
			"servers := suites.Wrap(&app.Config{ApiExtensions: config}, s.RecommendedOptions.Etcd)"),
		before("errCh = make(chan error)", "servers.AddExtensionsReaders(server)"),
	}},
}

// apply returns a file's text with the edits.
func (p patch) apply(text string) (string, error) {
	for _, e := range p.edits {
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s/%s has %q %d times, want 1: the patch does not fit this version", p.module, p.file, e.old,
				n)
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return text, nil
}
