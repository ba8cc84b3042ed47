package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is a change of one place of a source file.
type mutant struct {
	file       string // its path
	line       int
	begin, end int    // the changed bytes
	old, new   string // old is what is there
	source     string // the line's text, without the white space around it
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s → %s in %q", m.file, m.line, inOneLine(m.old), inOneLine(m.new), m.source)
}

// inOneLine shortens code for a message.
func inOneLine(code string) string {
	code = strings.Join(strings.Fields(code), " ")
	if len(code) > 80 {
		code = code[:77] + "..."
	}
	if code == "" {
		return "nothing"
	}
	return code
}

// apply returns the changed source.
func (m mutant) apply(source []byte) []byte {
	return slices.Concat(source[:m.begin], []byte(m.new), source[m.end:])
}

// operators are replaced by each other.
var operators = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD,
}

// mutantsOf returns the mutants of a file: another operator, a condition that is negated, a call or an assignment to a
// field that is left out, and two statements in the other order.
func mutantsOf(path string) ([]mutant, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(source), "\n")
	var all []mutant
	add := func(begin, end token.Pos, replacement func(old string) string) {
		from, to := files.Position(begin), files.Position(end)
		old := string(source[from.Offset:to.Offset])
		all = append(all, mutant{
			file: path, line: from.Line, begin: from.Offset, end: to.Offset,
			old: old, new: replacement(old), source: strings.TrimSpace(lines[from.Line-1]),
		})
	}
	negated := func(old string) string { return "!(" + old + ")" }
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if other, ok := operators[n.Op]; ok && !isText(n.X) && !isText(n.Y) {
				add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), func(string) string { return other.String() })
			}
		case *ast.IfStmt:
			if _, compared := n.Cond.(*ast.BinaryExpr); !compared { // a comparison has another operator already
				add(n.Cond.Pos(), n.Cond.End(), negated)
			}
		case *ast.BlockStmt:
			statements(n.List, add)
		case *ast.CaseClause:
			statements(n.Body, add)
		case *ast.CommClause:
			statements(n.Body, add)
		}
		return true
	})
	return all, nil
}

// isText reports whether an operand makes + a concatenation.
func isText(e ast.Expr) bool {
	literal, ok := e.(*ast.BasicLit)
	return ok && literal.Kind == token.STRING
}

// statements adds mutants of a list of statements.
func statements(list []ast.Stmt, add func(begin, end token.Pos, replacement func(string) string)) {
	for i, s := range list {
		if !hasEffect(s) {
			continue
		}
		add(s.Pos(), s.End(), func(string) string { return "" })
		if i+1 < len(list) && hasEffect(list[i+1]) {
			next := list[i+1]
			between := int(next.Pos() - s.End())
			first := int(s.End() - s.Pos())
			add(s.Pos(), next.End(), func(old string) string {
				return old[first+between:] + old[first:first+between] + old[:first]
			})
		}
	}
}

// hasEffect reports whether a statement calls a function for its effect, or assigns to something that was declared
// before.
func hasEffect(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return ok && !isPanic(call)
	case *ast.AssignStmt:
		return s.Tok == token.ASSIGN || s.Tok.IsOperator() && s.Tok != token.DEFINE
	case *ast.IncDecStmt, *ast.DeferStmt, *ast.SendStmt:
		return true
	}
	return false
}

// isPanic reports whether a call is one of panic: an invariant that holds is not noticed.
func isPanic(call *ast.CallExpr) bool {
	name, ok := call.Fun.(*ast.Ident)
	return ok && name.Name == "panic"
}

// mutantsIn returns the mutants of all files of a package.
func mutantsIn(p goPackage) ([]mutant, error) {
	var all []mutant
	for _, file := range p.GoFiles {
		found, err := mutantsOf(filepath.Join(p.Dir, file))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}
