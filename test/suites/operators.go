package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// operator is a project whose tests start envtest. Its tests run where the module cache has them, with the libraries
// that the project's go.mod names.
type operator struct {
	module, version string
	// packages are the folders of tests. The quickest packages that use envtest are listed, not all of them.
	packages []string
	// ginkgo is whether the packages have specs.
	ginkgo bool
	// prepare makes what the project's Makefile would make before the tests, in a folder of its own. It returns
	// variables of the tests' environment. It may be nil.
	prepare func(ctx context.Context, kubectl, source, dir string) ([]string, error)
}

// name is the last element of the module's path.
func (o operator) name() string { return path.Base(o.module) }

// targets returns the packages of tests.
func (o operator) targets() []target {
	return under(o.name(), o.module, "", o.ginkgo, o.packages...)
}

// operators are the projects whose tests run with the assets.
func operators() []operator {
	return []operator{
		{module: "sigs.k8s.io/cluster-api", version: "v1.14.2", packages: []string{
			"util/patch/test", "util/controller", "internal/util/ssa/test", "core/reconcilers/topology/cluster/structuredmerge",
			"core/reconcilers/clusterclass", "core/reconcilers/clusterresourceset", "core/reconcilers/extensionconfig",
			"core/reconcilers/machinehealthcheck", "core/reconcilers/machineset", "core/webhooks/admission/test",
			"controllers/crdmigrator", "internal/topology/upgrade", "bootstrap/kubeadm/reconcilers/kubeadmconfig",
		}},
		{module: "sigs.k8s.io/karpenter", version: "v1.14.1", ginkgo: true, packages: []string{
			"pkg/apis/v1", "pkg/apis/v1alpha1", "pkg/controllers/metrics/pod", "pkg/controllers/node/health",
			"pkg/controllers/node/termination",
			"pkg/controllers/nodeclaim/disruption", "pkg/controllers/nodeclaim/garbagecollection",
			"pkg/controllers/nodeclaim/lifecycle",
			"pkg/controllers/nodeoverlay", "pkg/controllers/nodepool/counter", "pkg/controllers/provisioning",
			"pkg/controllers/state",
		}},
		{module: "sigs.k8s.io/kueue", version: "v0.17.0", ginkgo: true, prepare: prepareKueue, packages: []string{
			"test/integration/singlecluster/webhook/core", "test/integration/singlecluster/conversion",
			"test/integration/singlecluster/controller/core", "test/integration/singlecluster/controller/jobs/job",
			"test/integration/singlecluster/scheduler/fairsharing", "test/integration/singlecluster/scheduler/podsready",
		}},
	}
}

// newOperatorWorkspace makes a module with an operator's libraries, which requires the operator. What the operator
// takes from folders of its repository, such as its API, is required as a module of the same version.
func newOperatorWorkspace(ctx context.Context, o operator, dir string) (workspace, error) {
	w := workspace{dir}
	source, err := download(ctx, o)
	if err != nil {
		return w, err
	}
	mod, err := parseModule(filepath.Join(source, "go.mod"))
	if err != nil {
		return w, err
	}
	text, err := o.require(mod)
	if err != nil {
		return w, err
	}
	return w, w.write(text, filepath.Join(source, "go.sum"))
}

// require turns an operator's module into one that requires it.
func (o operator) require(mod *modfile.File) ([]byte, error) {
	required := map[string]bool{o.module: true}
	for _, r := range mod.Replace {
		if modfile.IsDirectoryPath(r.New.Path) {
			required[r.Old.Path] = true
			if err := mod.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return nil, err
			}
		}
	}
	for module := range required {
		if err := mod.AddRequire(module, o.version); err != nil {
			return nil, err
		}
	}
	if err := mod.AddModuleStmt(workspaceModule); err != nil {
		return nil, err
	}
	mod.Cleanup()
	return mod.Format()
}

// download returns an operator's folder in the module cache.
func download(ctx context.Context, o operator) (string, error) {
	text, err := workspace{os.TempDir()}.goCommand(ctx, "mod", "download", "-json", o.module+"@"+o.version)
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, text)
	}
	var module struct{ Dir string }
	err = json.Unmarshal([]byte(text), &module)
	return module.Dir, err
}

// prepareKueue makes the folders that kueue's Makefile makes, or that its tests read: its definitions with the patches
// for conversion by webhooks, and its webhooks.
func prepareKueue(ctx context.Context, kubectl, source, dir string) ([]string, error) {
	const components = "config/components"
	definitions := filepath.Join(dir, components, "crd/_output")
	if err := os.MkdirAll(definitions, 0o777); err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, kubectl, "kustomize", filepath.Join(source, components, "crd"))
	var errors strings.Builder
	command.Stderr = &errors
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl kustomize: %w\n%s", err, errors.String())
	}
	if err := os.WriteFile(filepath.Join(definitions, "crds.yaml"), text, 0o666); err != nil {
		return nil, err
	}
	if err := os.Symlink(filepath.Join(source, components, "webhook"), filepath.Join(dir, components,
		"webhook")); err != nil {
		return nil, err
	}
	return []string{"PROJECT_DIR=" + filepath.Join(dir, "test")}, nil // whose parent is the project's folder
}
