package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/txtar"
)

//go:embed planted.txt
var plantedText []byte

// planted is a mistake written by hand.
type planted struct {
	mutant
	importPath string
	effect     string // what a user would see
}

// plantedIn returns the mistakes of an archive for the module in a folder. A file of the archive is named "path:
// effect", and has the old and the new code with a line "=>" between them. The old code occurs once in the file.
func plantedIn(archive []byte, root, module string) ([]planted, error) {
	var all []planted
	for _, f := range txtar.Parse(archive).Files {
		path, effect, ok := strings.Cut(f.Name, ": ")
		before, after, ok2 := strings.Cut(string(f.Data), "\n=>\n")
		if !ok || !ok2 {
			return nil, fmt.Errorf("planted.txt: %q is not path: effect, with old and new code around a line =>", f.Name)
		}
		after = strings.TrimSuffix(after, "\n")
		file := filepath.Join(root, filepath.FromSlash(path))
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if n := strings.Count(string(source), before); n != 1 {
			return nil, fmt.Errorf("planted.txt: %q: the old code occurs %d times, want once", f.Name, n)
		}
		begin := bytes.Index(source, []byte(before))
		all = append(all, planted{
			mutant: mutant{
				file: file, line: 1 + bytes.Count(source[:begin], []byte("\n")), begin: begin, end: begin + len(before),
				old: before, new: after, source: effect,
			},
			importPath: module + "/" + filepath.ToSlash(filepath.Dir(path)), effect: effect,
		})
	}
	return all, nil
}
