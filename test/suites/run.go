package suites

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/test/peer"
)

// program is the compiled tests of a package.
type program struct {
	target
	binary string
	dir    string   // of the package: tests read files beside them
	logs   string   // folder of the tests' output
	env    []string // of the tests, beside the test's own
	// assets are folders of kube-apiserver, etcd and kubectl, for envtest and Kubernetes' tests, by mode.
	assets map[string]string
}

// selection is which tests of a program run: regular expressions as of go test -run and of ginkgo.
type selection struct{ tests, specs string }

// selected returns the selection of a regular expression: of specs if the tests are specs.
func (t target) selected(by string) selection {
	if t.ginkgo {
		return selection{specs: by}
	}
	return selection{tests: by}
}

// run runs tests in a mode, Kubernetes' with an etcd of their own. label names the run in the log.
func (p program) run(t *testing.T, mode, label string, s selection) (outcomes, time.Duration) {
	t.Helper()
	name := fmt.Sprintf("%s.%s.%s", strings.ReplaceAll(p.name, "/", "."), mode, label)
	report := filepath.Join(p.logs, name+".specs.json")
	args := []string{"tool", "test2json", "-t", p.binary, "-test.v=test2json", "-test.timeout=2h"}
	if s.tests != "" {
		args = append(args, "-test.run="+s.tests)
	}
	if p.ginkgo {
		args = append(args, "-ginkgo.seed=1", "-ginkgo.timeout=2h", "-ginkgo.json-report="+report)
		if p.skip != "" {
			args = append(args, "-ginkgo.skip="+p.skip)
		}
		if focus := cmp.Or(s.specs, p.focus); focus != "" {
			args = append(args, "-ginkgo.focus="+focus)
		}
	}
	if p.cluster {
		kubeconfig, stop := startCluster(t, mode)
		defer stop()
		args = append(args, "-provider=skeleton", "-kubeconfig="+kubeconfig)
	}
	log, err := os.Create(filepath.Join(p.logs, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = p.dir
	command.Stderr = log
	command.Env = append(os.Environ(),
		"KEEPWATCH_READS="+mode, // kubernetes/suites and the script of assets read it
		"KUBEBUILDER_ASSETS="+p.assets[mode], "KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=2m",
		"KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT=2m",
		"PATH="+p.assets[mode]+":"+os.Getenv("PATH"))
	command.Env = append(command.Env, p.env...)
	if p.startsServers() {
		etcd := peer.StartEtcd(t)
		defer etcd.Kill()
		command.Env = append(command.Env, "KUBE_INTEGRATION_ETCD_URL="+string(etcd.Endpoint))
	}
	start := time.Now()
	found, err := follow(command, log)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if p.ginkgo {
		if err := found.readSpecs(report); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	return found, time.Since(start)
}

// startsServers reports whether the tests start API servers on an etcd that runs already.
func (t target) startsServers() bool {
	_, ok := copied[t.module]
	return ok && !t.cluster
}

// follow runs a command that writes test2json's events. Failed tests are not an error.
func follow(command *exec.Cmd, log io.Writer) (outcomes, error) {
	events, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	found := outcomes{}
	err = found.readEvents(events, log)
	_ = command.Wait() // the outcome process says it
	return found, err
}

// repeat runs each test that differed again, in both modes in turns.
func (p program) repeat(t *testing.T, r *result, times int) {
	t.Helper()
	r.Repeated = map[string]map[string][]outcome{}
	differences := r.differences()
	for _, s := range selections(differences) {
		for i := range times {
			for _, mode := range modes {
				again, _ := p.run(t, mode, fmt.Sprintf("again%d", i+1), s)
				for _, name := range differences {
					if o, ok := again[name]; ok && (o != skipped || !strings.HasPrefix(name, specPrefix)) {
						if r.Repeated[mode] == nil {
							r.Repeated[mode] = map[string][]outcome{}
						}
						r.Repeated[mode][name] = append(r.Repeated[mode][name], o)
					}
				}
			}
		}
	}
}

// selections returns what to run for tests by name: each spec and each of Go's tests alone, with all
// tests within it.
func selections(names []string) []selection {
	var all []selection
	for _, name := range names {
		s := selection{}
		if spec, ok := strings.CutPrefix(name, specPrefix); ok {
			s.specs = regexp.QuoteMeta(spec) + "$" // it follows the name of the suite
		} else if name != process {
			outer, _, _ := strings.Cut(name, "/")
			s.tests = "^" + regexp.QuoteMeta(outer) + "$"
		}
		if s != (selection{}) && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// makeAssets makes the folder that tests find their programs in. For those that do not start API servers in their own
// process, kube-apiserver is keepwatch-apiserver in the mode of the run.
func makeAssets(t *testing.T, dir string, selected []target) {
	t.Helper()
	linkPrograms(t, dir, peer.Etcd, peer.Kubectl)
	if !slices.ContainsFunc(selected, func(of target) bool { return !of.startsServers() }) {
		return
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %q --reads=\"$KEEPWATCH_READS\" \"$@\"\n", peer.KeepwatchAPIServer(t))
	if err := os.WriteFile(filepath.Join(dir, "kube-apiserver"), []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
}

// linkPrograms makes a folder with links to programs of other projects.
func linkPrograms(t *testing.T, dir string, programs ...peer.Binary) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, b := range programs {
		path, err := b.Path(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(dir, b.Name)
		_ = os.Remove(link)
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
	}
}

// commit is the state of the repository that was tested.
func commit(ctx context.Context, root string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
