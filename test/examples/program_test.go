package examples

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// printed is the program in docs/operator.md.
func printed(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "operator.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "\n    package main\n")
	if !found {
		t.Fatal("docs/operator.md has no program")
	}
	program := "package main\n"
	for line := range strings.Lines(rest) {
		code, indented := strings.CutPrefix(line, "    ")
		if !indented && line != "\n" {
			break
		}
		if indented {
			line = code
		}
		program += line
	}
	return strings.TrimRight(program, "\n") + "\n"
}

// TestPrintedProgram extracts the program from docs/operator.md and runs it as printed.
func TestPrintedProgram(t *testing.T) {
	r := newReader(t)
	program := printed(t)
	if lines := strings.Count(program, "\n"); lines > 32 {
		t.Errorf("the program has %d lines; want a short one, of at most 32", lines)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "program")
	if err := build(path, source); err != nil {
		t.Fatal(err)
	}
	labels(r, r.start(path, "--health-probe-bind-address=0", "--metrics-bind-address=0"))
}

// TestOperator runs the same program at the path in the README.
func TestOperator(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "examples/operator/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if _, program, _ := strings.Cut(string(source), "\n"); strings.ReplaceAll(program, "\t", "    ") != printed(t) {
		t.Errorf("docs/operator.md does not have this program:\n%s", program)
	}
	r := newReader(t)
	labels(r, r.run("operator"))
}

// labels checks the program's effect.
func labels(r *reader, p *program) {
	labelled := func(size int) func(w *unstructured.Unstructured) bool {
		return func(w *unstructured.Unstructured) bool { return w.GetLabels()["size"] == fmt.Sprint(size) }
	}
	r.create("one", 3)
	r.becomes("one", labelled(3))
	r.patch("one", `{"spec":{"size":5}}`)
	r.becomes("one", labelled(5))
	r.create("bad", -1)
	r.waitForEvent("size -1 is negative")
	r.delete("one")
	r.delete("bad")
	p.end()
}
