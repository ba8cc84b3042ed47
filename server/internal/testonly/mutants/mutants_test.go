package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const counter = `package counter

type Counter struct{ n, last int }

// Add adds up to 9.
func (c *Counter) Add(n int) bool {
	if n < 0 || n > 9 {
		return false
	}
	c.last = n
	c.n += n
	return true
}
`

const counterTest = `package counter

import "testing"

func TestAdd(t *testing.T) {
	var c Counter
	if !c.Add(3) || c.Add(-1) || c.Add(10) || c.n != 3 {
		t.Error(c)
	}
}
`

// The mutants of a small package survive exactly where its test looks at nothing.
func TestMutants(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module counter\n\ngo 1.26\n", "counter.go": counter,
		"counter_test.go": counterTest} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	t.Setenv("GOWORK", "off")
	packages, err := list(t.Context(), []string{"."})
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := mutantsIn(packages[0])
	if err != nil {
		t.Fatal(err)
	}
	trial, err := begin(t.Context(), packages[0].ImportPath, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]verdict{}
	for _, m := range mutants {
		v, err := trial.judge(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		verdicts[inOneLine(m.old)+" → "+inOneLine(m.new)] = v
	}
	want := map[string]verdict{
		"|| → &&":              killed,
		"< → <=":               survived, // no test adds 0
		"> → >=":               survived, // nor 9
		"c.last = n → nothing": survived,
		"c.n += n → nothing":   killed,
		"c.last = n c.n += n → c.n += n c.last = n": survived,
	}
	for change, v := range want {
		if verdicts[change] != v {
			t.Errorf("%s: %q, want %s", change, verdicts[change], v)
		}
	}
	if len(verdicts) != len(want) {
		t.Errorf("the mutants are %v", verdicts)
	}
	if source, err := os.ReadFile("counter.go"); err != nil || string(source) != counter {
		t.Errorf("the source on disk has changed: %v", err)
	}
}

// Each mistake written by hand, and each equivalent mutant, has its place in the sources as they are.
func TestListsFitTheSources(t *testing.T) {
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plantedIn(plantedText, root, "module"); err != nil {
		t.Error(err)
	}
	known, err := equivalents(equivalentText)
	if err != nil {
		t.Fatal(err)
	}
	for e := range known {
		mutants, err := mutantsOf(filepath.Join(root, filepath.FromSlash(e.file)))
		if err != nil {
			t.Error(err)
		} else if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.equivalence(root) == e }) {
			t.Errorf("equivalent.txt: there is no such mutant: %+v", e)
		}
	}
	if _, err := equivalents("a.go | x | < | <="); err == nil || !strings.Contains(err.Error(), "reason") {
		t.Errorf("an equivalent mutant without a reason: %v", err)
	}
}
