// Package clients has programs that follow the ConfigMaps of a namespace, each with the unmodified
// client of a project and language, and print a [Line] for each event that its user sees.
//
//	golang      client-go, controller-runtime, kubectl; Keepwatch
//	java        fabric8's client, a folder a version; Kubernetes' Java client
//	javascript  @kubernetes/client-node
//	python      Kubernetes' Python client; kopf
//	rust        kube-rs
//
// javascript, java and rust also have an operator, which test/judged judges.
//
// The programs do what the client's documentation shows, and no more: one that the documentation has
// end with an error ends.
package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/keepwatch/keepwatch/test/peer"
)

// Program is a client, as a process.
type Program struct {
	Name string
	// Short is the name as the head of a narrow column.
	Short string
	View  View
	// Ours is true for Keepwatch's own clients.
	Ours bool

	// command returns the program's path and its first arguments.
	command func(root string) ([]string, error)
	// pin is the file with the client's version, and the name before the version there.
	pin, pinned string
}

// View is what the user of a client sees. The set is closed.
type View string

// The views.
const (
	// Events: each change. Changes that a list hides are missing.
	Events View = "events"
	// States: the latest state of each object that has changed, as for a reconciler.
	States View = "states"
	// Condition: that an object has the condition which the user waits for.
	Condition View = "condition"
)

const (
	goMod        = "../go.mod"
	requirements = "clients/python/requirements.txt"
	packageJSON  = "clients/javascript/package.json"
	clientGo     = "k8s.io/client-go"
)

// Programs returns all programs, those of other projects first.
func Programs() []Program {
	return []Program{
		{Name: "client-go informer", Short: "go", View: Events, command: golang("informer"), pin: goMod, pinned: clientGo},
		{Name: "client-go RetryWatcher", Short: "go-rw", View: Events, command: golang("retrywatcher"), pin: goMod,
			pinned: clientGo},
		{Name: "controller-runtime", Short: "c-r", View: States, command: golang("controller-runtime"), pin: goMod,
			pinned: "sigs.k8s.io/controller-runtime"},
		{Name: "kubectl get -w", Short: "get-w", View: Events, command: kubectl("kubectl-get"), pin: "../kubectl/go.mod",
			pinned: "k8s.io/kubectl"},
		{Name: "kubectl wait", Short: "wait", View: Condition, command: kubectl("kubectl-wait"), pin: "../kubectl/go.mod",
			pinned: "k8s.io/kubectl"},
		{Name: "python Watch", Short: "py", View: Events, command: python("follow_watch.py"), pin: requirements,
			pinned: "kubernetes"},
		{Name: "python SharedInformer", Short: "py-si", View: Events, command: python("follow_informer.py"),
			pin: requirements, pinned: "kubernetes"},
		{Name: "kopf", Short: "kopf", View: Events, command: python("follow_kopf.py"), pin: requirements, pinned: "kopf"},
		{Name: "@kubernetes/client-node", Short: "node", View: Events, command: node, pin: packageJSON,
			pinned: "@kubernetes/client-node"},
		{Name: "fabric8 4.2.0", Short: "f4.2", View: Events, command: java("4.2.0", "classes")},
		{Name: "fabric8 4.13.3", Short: "f4.13", View: Events, command: java("4.13.3", "classes")},
		{Name: "fabric8 4.13.3 watch", Short: "f4.13w", View: Events, command: java("4.13.3", "watch")},
		{Name: "fabric8 7.9.0", Short: "f7.9", View: Events, command: java("7.9.0", "classes")},
		{Name: "Java informer", Short: "java", View: Events, command: java("official", "classes"),
			pin: "clients/java/official/pom.xml", pinned: "<artifactId>client-java</artifactId>"},
		{Name: "kube-rs watcher", Short: "rs", View: Events, command: rust, pin: "clients/rust/Cargo.toml", pinned: "kube"},
		{Name: "keepwatch watch", Short: "kw-w", View: Events, Ours: true, command: stream},
		{Name: "keepwatch informer", Short: "kw-i", View: Events, Ours: true, command: golang("keepwatch-informer")},
		{Name: "keepwatch operator", Short: "kw-o", View: States, Ours: true, command: golang("keepwatch-operator")},
	}
}

// Find returns the program with a name.
func Find(name string) (Program, error) {
	for _, p := range Programs() {
		if p.Name == name {
			return p, nil
		}
	}
	return Program{}, fmt.Errorf("there is no client %q", name)
}

// Command returns the program's path and its first arguments; the path of a kubeconfig and a namespace
// follow. The error names what this machine lacks.
func (p Program) Command() ([]string, error) {
	root, err := folder()
	if err != nil {
		return nil, err
	}
	return p.command(root)
}

// Version returns the client's version, or "" if its name has it, or if it is this tree's.
func (p Program) Version() (string, error) {
	if p.pin == "" {
		return "", nil
	}
	root, err := folder()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, p.pin))
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)(^|[\s"])` + regexp.QuoteMeta(p.pinned) +
		`[^\w.]+(?:version[^\w.]+)?v?(\d+(\.\d+)+)`).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s has no version of %s", p.pin, p.pinned)
	}
	version := string(found[2])
	if strings.HasPrefix(p.pinned, "k8s.io/kubectl") {
		version = "1" + strings.TrimPrefix(version, "0") // kubectl's own number
	}
	return version, nil
}

// folder is the absolute path of test/matrix.
var folder = sync.OnceValues(func() (string, error) {
	test, err := peer.TestModule()
	return filepath.Join(test, "matrix"), err
})

// built is the folder of the programs that make builds.
func built(root string) string { return filepath.Join(root, "../../bin") }

var goProgram = sync.OnceValues(func() (string, error) { return peer.Program("follow", "./matrix/clients/golang") })

func golang(client string, args ...string) func(string) ([]string, error) {
	return func(string) ([]string, error) {
		path, err := goProgram()
		return append([]string{path, client}, args...), err
	}
}

func kubectl(client string) func(string) ([]string, error) {
	return func(root string) ([]string, error) {
		path, err := peer.Kubectl.Path(context.Background())
		if err != nil {
			return nil, err
		}
		return golang(client, path)(root)
	}
}

func stream(root string) ([]string, error) {
	path, err := peer.KeepwatchPath()
	if err != nil {
		return nil, err
	}
	return golang("keepwatch-watch", path)(root)
}

func python(script string) func(string) ([]string, error) {
	return func(root string) ([]string, error) {
		interpreter := filepath.Join(built(root), "python/bin/python")
		if !present(interpreter) {
			return nil, errors.New("the Python clients: run make python")
		}
		return []string{interpreter, filepath.Join(root, "clients/python", script)}, nil
	}
}

// java is the program of one folder of classes with a version of a client.
func java(version, program string) func(string) ([]string, error) {
	return func(root string) ([]string, error) {
		folder := filepath.Join(built(root), "java", version)
		classes := filepath.Join(folder, program)
		jre, err := exec.LookPath("java")
		if err != nil || !present(classes) {
			return nil, errors.New("the Java clients: run make java")
		}
		// Small heaps and one compiler: tests run many of them side by side.
		return []string{jre, "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
			"-cp", classes + ":" + filepath.Join(folder, "lib") + "/*", "Follow"}, nil
	}
}

func node(root string) ([]string, error) {
	folder := filepath.Join(root, "clients/javascript")
	path, err := exec.LookPath("node")
	if err != nil || !present(filepath.Join(folder, "node_modules")) {
		return nil, errors.New("the client of Node.js 20 or later: run make javascript")
	}
	return []string{path, filepath.Join(folder, "follow.mjs")}, nil
}

func rust(root string) ([]string, error) {
	path := filepath.Join(built(root), "rust/debug/follow")
	if !present(path) {
		return nil, errors.New("the Rust client: run make rust")
	}
	return []string{path}, nil
}

func present(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
