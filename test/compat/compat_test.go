package compat

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

var only = flag.String("compat.versions", "", "the versions of k8s.io to test, separated by spaces; all if empty")

func TestMain(m *testing.M) { peer.Main(m) }

func TestVersions(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	chosen, unknown := selected(*only)
	if len(unknown) > 0 {
		t.Fatalf("unknown versions: %q", unknown)
	}
	if testing.Short() {
		chosen = []version{versions[0], versions[len(versions)-1]}
	}
	for _, v := range chosen {
		t.Run(v.kubernetes, func(t *testing.T) {
			m := newModule(t, root, v)
			m.keepsItsVersions(t)
			m.run(t, "build", "-tags", v.tag, "./...")
			if testing.Short() {
				return
			}
			t.Run("library", func(t *testing.T) {
				m.test(t, nil, []string{library, library + "/store", library + "/reflector/...", library + "/source/...",
					library + "/informer", library + "/informer/health", library + "/informer/internal/...",
					library + "/operator/...", library + "/stream/...", library + "/check"})
			})
			if v.runtime == "" {
				return
			}
			m.require(t, "sigs.k8s.io/controller-runtime", v.runtime)
			t.Run("clientgo", func(t *testing.T) { testClientgo(t, m) })
			t.Run("client-go's tests", func(t *testing.T) { testClientGosOwn(t, m) })
			t.Run("manager", func(t *testing.T) { testManager(t, m) })
		})
	}
}

// testClientgo runs the tests of clientgo, and those that import what older versions lack.
func testClientgo(t *testing.T, m module) {
	newest, err := filepath.Abs(filepath.Join("testdata", "clientgo", "shards_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	m.test(t, nil, []string{library + "/informer/clientgo"}, "-overlay", m.overlay(t, map[string]string{
		filepath.Join(m.root, "informer", "clientgo", "shards_test.go"): newest}))
}

// testClientGosOwn runs client-go's tests on clientgo's informers, in whose package they are: client-go's use its
// inside, too.
func testClientGosOwn(t *testing.T, m module) {
	bridges, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	bridge := filepath.Join(bridges, "clientgo", "bridge_test.go")
	clientGo := strings.TrimSpace(m.run(t, "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go"))
	tests, err := readClientGoTests(clientGo, bridge)
	if err != nil {
		t.Fatal(err)
	}
	if len(tests.run) < 16 {
		t.Errorf("only %q run", tests.run)
	}
	for test, reason := range tests.leftOut {
		t.Logf("left out: %s: %s", test, reason)
	}
	inClientgo := filepath.Join(m.root, "informer", "clientgo")
	replace := map[string]string{
		filepath.Join(inClientgo, "bridge_test.go"):                          bridge,
		filepath.Join(m.root, "informer", "internal", "follow", "bridge.go"): filepath.Join(bridges, "follow", "bridge.go"),
	}
	for name, text := range tests.files {
		m.write(t, filepath.Join("clientgo", name+".txt"), []byte(text))
		replace[filepath.Join(inClientgo, name)] = filepath.Join(m.dir, "clientgo", name+".txt")
	}
	slices.Sort(tests.run)
	arguments := []string{"-v", "-overlay", m.overlay(t, replace), "-run", ""}
	// client-go's tests wait for times, which a busy machine exceeds: what fails runs again, twice.
	for attempt, left := 1, tests.run; len(left) > 0; attempt++ {
		arguments[len(arguments)-1] = "^(" + strings.Join(left, "|") + ")$"
		out, err := m.try(t, nil, []string{library + "/informer/clientgo"}, arguments...)
		if err == nil {
			break
		}
		left = nil
		for _, failure := range failures.FindAllStringSubmatch(out, -1) {
			left = append(left, failure[1])
		}
		if attempt == 3 || len(left) == 0 {
			t.Fatalf("%v: failed: %q", err, left)
		}
	}
}

var failures = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// testManager runs package managed with the version's controller-runtime, on a server of this version.
func testManager(t *testing.T, m module) {
	server := peer.Serve(t)
	if err := load.DefineWidgets(t.Context(), server.Config()); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(m.dir, "kubeconfig")
	if err := peer.WriteKubeconfig(kubeconfig, server.Config()); err != nil {
		t.Fatal(err)
	}
	m.copy(t, filepath.Join("..", "managed"), "managed")
	test, err := os.ReadFile(filepath.Join("testdata", "managed", "managed_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, filepath.Join("managed", "managed_test.go"), test)
	m.test(t, []string{"KUBECONFIG=" + kubeconfig}, []string{"./managed"})
}
