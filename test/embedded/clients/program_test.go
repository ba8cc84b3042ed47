package clients

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is a client of another language, as a process. It prints the events that
// the client delivers as lines of JSON, see event.
type program struct {
	name string
	// command returns the program's path and its first arguments; a kubeconfig and a namespace
	// follow. The error names the program that this machine does not have.
	command func() ([]string, error)
}

// The folders are those that make python, make java and make javascript fill.
const (
	built      = "../../../bin"
	sources    = "../.."
	pythonPath = built + "/python/bin/python"
	javaPath   = built + "/java"
)

func programs() []program {
	return []program{
		{"kopf", python("follow_kopf.py")},
		{"python Watch", python("follow_watch.py")},
		{"python SharedInformer", python("follow_informer.py")},
		{"fabric8 4.2.0", java("4.2.0")},
		{"fabric8 4.13.3", java("4.13.3")},
		{"fabric8 7.9.0", java("7.9.0")},
		{"@kubernetes/client-node", node},
	}
}

func python(script string) func() ([]string, error) {
	return func() ([]string, error) {
		if err := present(pythonPath, "Python: run make python"); err != nil {
			return nil, err
		}
		return absolute(pythonPath, filepath.Join(sources, "python", script))
	}
}

func java(version string) func() ([]string, error) {
	return func() ([]string, error) {
		classes := filepath.Join(javaPath, version, "classes")
		jre, err := exec.LookPath("java")
		if err == nil {
			err = present(classes, "")
		}
		if err != nil {
			return nil, errors.New("Java: run make java")
		}
		paths, err := absolute(classes, filepath.Join(javaPath, version, "lib"))
		if err != nil {
			return nil, err
		}
		// Small heaps and one compiler: the tests run many of them side by side.
		return []string{jre, "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
			"-cp", paths[0] + ":" + paths[1] + "/*", "Follow"}, nil
	}
}

func node() ([]string, error) {
	path, err := exec.LookPath("node")
	if err == nil {
		err = present(filepath.Join(sources, "javascript/node_modules"), "")
	}
	if err != nil {
		return nil, errors.New("Node.js 20 or later: run make javascript")
	}
	script, err := absolute(filepath.Join(sources, "javascript/follow.mjs"))
	if err != nil {
		return nil, err
	}
	return []string{path, script[0]}, nil
}

func present(path, lack string) error {
	if _, err := os.Stat(path); err != nil {
		return errors.New(lack)
	}
	return nil
}

func absolute(paths ...string) ([]string, error) {
	for i, p := range paths {
		a, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		paths[i] = a
	}
	return paths, nil
}

// skipped names the clients that this machine cannot run, in one line.
func skipped(lacking map[string][]string) string {
	var parts []string
	for lack, names := range lacking {
		parts = append(parts, fmt.Sprintf("%s are NOT tested, they need %s", strings.Join(names, ", "), lack))
	}
	return strings.Join(parts, "; ")
}
