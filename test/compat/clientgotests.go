//lint:file-ignore SA1019 names are resolved within the files: to check types would need all that client-go's tests import

package compat

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// inside are fields of client-go's informer. A test that reads or sets one is left out.
var inside = []string{"clock", "processor", "resyncCheckPeriod", "startedLock"}

// differences are the tests of what clientgo does on purpose in another way; see its doc.go.
var differences = map[string]string{
	"TestEventPanics": "clientgo reports a handler's panic in other words, and continues without a pause of a second",
}

// constructors are client-go's functions for which the tests have clientgo's, under the same names.
var constructors = []string{"NewSharedInformer", "NewSharedIndexInformer"}

// clientGoTests are client-go's tests of its shared informer, as files of package clientgo.
type clientGoTests struct {
	files   map[string]string // contents by name
	run     []string          // names of tests
	leftOut map[string]string // names of tests, and why
}

// readClientGoTests makes the tests of those in the folder of client-go. bridge is the file with what they need of
// clientgo.
func readClientGoTests(clientGo, bridge string) (*clientGoTests, error) {
	positions := token.NewFileSet()
	provided, err := parser.ParseFile(positions, bridge, nil, 0)
	if err != nil {
		return nil, err
	}
	sources := map[string]*source{}
	known := maps.Clone(provided.Scope.Objects)
	for _, name := range []string{"shared_informer_test.go", "util_test.go"} {
		s, err := readSource(positions, filepath.Join(clientGo, "tools", "cache", name))
		if err != nil {
			return nil, err
		}
		sources[name] = s
		maps.Copy(known, s.syntax.Scope.Objects)
	}
	t := &clientGoTests{files: map[string]string{}, leftOut: map[string]string{}}
	dropped := maps.Clone(differences)
	for more := true; more; { // a function that calls a dropped one is dropped, too
		more = false
		for _, s := range sources {
			for _, f := range s.functions() {
				name := f.Name.Name
				if dropped[name] != "" {
					continue
				}
				if provided.Scope.Lookup(name) != nil {
					dropped[name] = "the bridge has it"
				} else if reason := reasonToDrop(f, dropped, provided); reason != "" {
					dropped[name] = reason
				} else {
					continue
				}
				more = true
			}
		}
	}
	for name, s := range sources {
		t.files[name] = s.rewrite(known, dropped)
		for _, f := range s.functions() {
			switch test := f.Name.Name; {
			case !strings.HasPrefix(test, "Test") || f.Recv != nil:
			case dropped[test] != "":
				t.leftOut[test] = dropped[test]
			default:
				t.run = append(t.run, test)
			}
		}
	}
	return t, nil
}

func reasonToDrop(f *ast.FuncDecl, dropped map[string]string, provided *ast.File) (reason string) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if slices.Contains(inside, n.Sel.Name) {
				reason = "it uses the field " + n.Sel.Name + " of client-go's informer"
			}
		case *ast.Ident:
			if dropped[n.Name] != "" && provided.Scope.Lookup(n.Name) == nil {
				reason = "it calls " + n.Name + ": " + dropped[n.Name]
			}
		}
		return reason == ""
	})
	return reason
}

// source is a file of client-go's tests.
type source struct {
	text   string
	file   *token.File
	syntax *ast.File
}

func readSource(positions *token.FileSet, name string) (*source, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	syntax, err := parser.ParseFile(positions, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &source{string(text), positions.File(syntax.FileStart), syntax}, nil
}

func (s *source) functions() (all []*ast.FuncDecl) {
	for _, d := range s.syntax.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
			all = append(all, f)
		}
	}
	return all
}

// edit replaces the text in [from, to).
type edit struct {
	from, to token.Pos
	text     string
}

// rewrite returns the file as one of package clientgo, without the dropped functions. Lines stay lines, since tests
// look for their numbers.
func (s *source) rewrite(known map[string]*ast.Object, dropped map[string]string) string {
	edits := []edit{{s.syntax.Name.Pos(), s.syntax.Name.End(), "clientgo"}}
	var gone []*ast.FuncDecl
	for _, f := range s.functions() {
		if dropped[f.Name.Name] != "" {
			gone = append(gone, f)
			edits = append(edits, edit{f.Pos(), f.End(), ""})
		}
	}
	isGone := func(n ast.Node) bool {
		return slices.ContainsFunc(gone, func(f *ast.FuncDecl) bool { return f.Pos() <= n.Pos() && n.End() <= f.End() })
	}
	used := map[string]bool{}
	qualified := false
	for _, id := range s.syntax.Unresolved {
		switch {
		case isGone(id):
		case id.Name == "sharedIndexInformer": // in a type assertion: *sharedIndexInformer
			edits = append(edits, edit{id.Pos() - 1, id.End(), "cache.SharedIndexInformer"})
			qualified = true
		case known[id.Name] == nil && id.IsExported() && !slices.Contains(constructors, id.Name):
			edits = append(edits, edit{id.Pos(), id.Pos(), "cache."})
			qualified = true
		default:
			used[id.Name] = true
		}
	}
	for _, i := range s.syntax.Imports {
		if !used[importName(i)] {
			edits = append(edits, edit{i.Pos(), i.End(), ""})
		}
	}
	if qualified {
		first := s.syntax.Imports[0]
		edits = append(edits, edit{first.Pos(), first.Pos(), `"k8s.io/client-go/tools/cache"; `})
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out strings.Builder
	from := 0
	for _, e := range edits {
		out.WriteString(s.text[from:s.file.Offset(e.from)] + e.text)
		from = s.file.Offset(e.to)
	}
	return out.String() + s.text[from:]
}

func importName(i *ast.ImportSpec) string {
	if i.Name != nil {
		return i.Name.Name
	}
	p, err := strconv.Unquote(i.Path.Value)
	if err != nil {
		panic(fmt.Sprintf("an import of a parsed file: %v", err))
	}
	if base := path.Base(p); base != "v2" {
		return base
	}
	return path.Base(path.Dir(p))
}
