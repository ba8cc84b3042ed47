// Package suites runs Kubernetes' and controller-runtime's own tests on keepwatch-apiserver, with
// --reads=upstream and with --reads=keepwatch, and compares the outcomes test by test.
//
// Kubernetes' tests start an API server in their own process. They are copied from the module cache into
// bin/suites, with patches that let the functions that start the server call kubernetes/suites. All that
// they test stays in the module cache. controller-runtime's tests are compiled there as they are, and
// start keepwatch-apiserver. Kubernetes' e2e specs of the API machinery run on a whole control plane. No file of
// another project is in this repository.
//
//	make kubernetes-suites                              # all; hours
//	make kubernetes-suites SUITE=apiextensions          # those whose name matches
//	make kubernetes-suites SUITE='^apiserver$' TESTS='^TestWatch'
//
// The outcomes of each suite are saved in bin/suites, from where the table of all suites is printed. Those of TESTS
// replace those that are saved of these tests.
//
// controller-runtime's tests also run with the programs of keepwatch assets, compared with kube-apiserver and etcd.
// There the mode upstream are the real programs, and keepwatch the assets. So do tests of operators, each with the
// libraries that its go.mod names. The outcomes are saved in test/envtest/results, and docs/testing.md has the table of
// them.
//
//	make envtest-suites                                 # all
//	make envtest-suites SUITE='^(client|cache)$'
//	make envtest-page                                   # the table of the saved outcomes
//
// # Files
//
//	targets.go   the packages of tests
//	operators.go the operators whose tests run with the assets, and the modules that those are compiled in
//	patches.go   the changes of other projects' files
//	workspace.go the module that tests are copied into and compiled in
//	cluster.go   the control plane of the e2e specs
//	run.go       runs a package in both modes, and repeats what differs
//	envtest.go   the table of controller-runtime's and operators' tests with the assets
//	outcome.go   reads the outcome of each test
//	result.go    the outcomes of both modes, and their table
package suites

import (
	"path"
	"regexp"
	"slices"
)

const (
	kubernetesModule = "k8s.io/kubernetes"
	extensionsModule = "k8s.io/apiextensions-apiserver"
	runtimeModule    = "sigs.k8s.io/controller-runtime"
)

// copied are the folders of tests, and of what starts their servers, by module.
var copied = map[string][]string{
	kubernetesModule: {"test/integration", "test/utils/apiserver", "cmd/kube-apiserver/app/testing"},
	extensionsModule: {"test/integration", "pkg/cmd/server/testing"},
}

// executables are programs that tests run, by module: the module cache keeps no permission to execute them.
var executables = map[string][]string{kubernetesModule: {"test/integration/client/testdata/exec-plugin.sh"}}

// target is a package of tests.
type target struct {
	name           string
	module, folder string
	ginkgo         bool   // the specs are compared, too
	cluster        bool   // the tests need a whole control plane
	focus, skip    string // the specs that run, and those of them that are left out, as of ginkgo.focus and ginkgo.skip
}

// targets returns all packages, the quickest to build first.
func targets() []target {
	all := under("apiextensions", extensionsModule, "test/integration", false, "", "conversion", "storage")
	all = append(all, under("controller-runtime", runtimeModule, "pkg", true,
		"client", "cache", "controller", "controller/controllerutil", "manager", "builder", "handler", "source", "cluster",
		"webhook",
		"metrics/filters", "internal/recorder", "internal/controller")...)
	all = append(all, under("controller-runtime", runtimeModule, "pkg", false, "client/apiutil",
		"manager/internal/integration")...)
	all = append(all, under("", kubernetesModule, "test/integration", false,
		"apiserver", "apimachinery", "apimachinery/apply", "etcd", "storageversion", "controlplane",
		"apiserver/apply", "apiserver/admissionwebhook", "apiserver/cel", "apiserver/discovery", "apiserver/openapi",
		"apiserver/flowcontrol", "apiserver/apidefinitions", "apiserver/peerproxy", "apiserver/certreload",
		"apiserver/coordinatedleaderelection", "apiserver/anonymous", "apiserver/tracing", "apiserver/egressselector",
		"apiserver/httpproxy",
		"apiserver/oidc", "apiserver/podlogs", "apiserver/portforward",
		"controlplane/transformation", "controlplane/audit",
		"dryrun", "events", "namespace", "quota", "garbagecollector", "storageversionmigrator", "auth", "client",
		"metrics")...)
	return append(all, target{name: "e2e/apimachinery", module: workspaceModule, folder: e2eFolder, ginkgo: true,
		cluster: true, focus: machinery, skip: needKubelet})
}

// machinery are the specs of the API machinery. Kubernetes' packages bring those of others along.
const machinery = `\[sig-api-machinery\]`

// needKubelet are the e2e specs that call servers which run in pods, or log in to the control plane's machine, and
// those that fail now and then anywhere.
const needKubelet = `AdmissionWebhook|CustomResourceConversionWebhook|CustomResourceFieldSelectors|Sample API Server|` +
	`Aggregated APIServer|sample-apiserver|\[Disruptive\]|\[Flaky\]`

// envtestTargets returns controller-runtime's packages whose tests start envtest.
func envtestTargets() []target {
	all := under("", runtimeModule, "pkg", true,
		"client", "cache", "controller", "controller/controllerutil", "manager", "builder", "handler", "source", "cluster",
		"webhook",
		"envtest", "reconcile", "metrics/filters", "internal/recorder", "internal/controller",
		"internal/testing/controlplane")
	return append(all, under("", runtimeModule, "pkg", false, "client/apiutil", "manager/internal/integration")...)
}

// matching reports whether the name of any target matches.
func matching(targets []target, which *regexp.Regexp) bool {
	return slices.ContainsFunc(targets, func(t target) bool { return which.MatchString(t.name) })
}

// under returns the targets of folders of a module.
func under(suite, module, root string, ginkgo bool, folders ...string) []target {
	var all []target
	for _, folder := range folders {
		all = append(all, target{name: path.Join(suite, folder), module: module, folder: path.Join(root, folder),
			ginkgo: ginkgo})
	}
	return all
}
