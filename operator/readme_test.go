package operator_test

import (
	"os"
	"strings"
	"testing"
)

// TestReadmePrintsTheExample holds the README to the program that is built.
func TestReadmePrintsTheExample(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	program := read("../examples/operator/main.go")
	program = program[strings.Index(program, "package main"):]
	var printed strings.Builder
	for line := range strings.Lines(program) {
		if line != "\n" {
			line = "    " + strings.ReplaceAll(line, "\t", "    ")
		}
		printed.WriteString(line)
	}
	if !strings.Contains(read("../README.md"), printed.String()) {
		t.Errorf("the README does not have this program:\n%s", printed.String())
	}
}
