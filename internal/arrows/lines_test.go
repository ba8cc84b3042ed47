package arrows

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is how long a line of Go is at most, with a tab as one column.
const maxColumns = 120

// TestLines checks the length of each line of Go. Text may be longer: strings, and blocks of comments that are not wrapped.
func TestLines(t *testing.T) {
	files, err := exec.Command("git", "-C", "../..", "ls-files", "*.go").Output()
	if err != nil {
		t.Skip("this is no clone, so that the files of the repository are not known")
	}
	for name := range strings.Lines(string(files)) {
		name = strings.TrimSpace(name)
		source, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(source), "DO NOT EDIT") && !strings.Contains(name, "/testdata/") {
			checkLines(t, name, source)
		}
	}
}

func checkLines(t *testing.T, name string, source []byte) {
	t.Helper()
	texts := linesOfText(source)
	for i, line := range strings.Split(string(source), "\n") {
		if n := utf8.RuneCountInString(line); n > maxColumns && !texts[i+1] {
			t.Errorf("%s:%d has %d columns: break it before %d", name, i+1, n, maxColumns)
		}
	}
}

// linesOfText returns the numbers of the lines that have a part of a string, or a comment that is not wrapped.
func linesOfText(source []byte) map[int]bool {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(source))
	s.Init(file, source, nil, scanner.ScanComments)
	texts := map[int]bool{}
	output := false // of an example
	for {
		position, kind, text := s.Scan()
		if kind == token.EOF {
			return texts
		}
		output = kind == token.COMMENT && (output || strings.HasPrefix(text, "// Output:"))
		if kind == token.STRING || output || kind == token.COMMENT && !isProse(text) {
			for i := range 1 + strings.Count(text, "\n") {
				texts[file.Line(position)+i] = true
			}
		}
	}
}

// isProse reports whether a line of a comment can be wrapped: it is no table, drawing, item of a list, or instruction.
func isProse(comment string) bool {
	return strings.HasPrefix(comment, "// ") && !strings.HasPrefix(comment, "//  ")
}
