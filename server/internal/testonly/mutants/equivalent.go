package main

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"
)

//go:embed equivalent.txt
var equivalentText string

// equivalence is a mutant that no test can notice, by the place's text and not by its line, which moves.
type equivalence struct{ file, source, old, new string }

// equivalents reads the list of equivalent mutants, each in a line: file | line of source | old | new | reason.
func equivalents(text string) (map[equivalence]bool, error) {
	all := map[equivalence]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, " | ")
		if len(fields) != 5 || fields[4] == "" {
			return nil, fmt.Errorf("equivalent.txt: want file | source | old | new | reason: %q", line)
		}
		all[equivalence{fields[0], fields[1], fields[2], fields[3]}] = true
	}
	return all, nil
}

// equivalence returns the mutant as the list has it.
func (m mutant) equivalence(root string) equivalence {
	file, err := filepath.Rel(root, m.file)
	if err != nil {
		file = m.file
	}
	return equivalence{filepath.ToSlash(file), m.source, inOneLine(m.old), inOneLine(m.new)}
}
