package main

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// home is the document that is the first page.
const home = "README.md"

// document is a parsed Markdown file.
type document struct {
	name     string // from the repository's root
	source   []byte
	tree     ast.Node
	title    string
	headings []heading
}

// heading is a heading below the title.
type heading struct {
	Level    int
	ID, Text string
}

func parse(name string, source []byte) *document {
	d := &document{name: name, source: source}
	context := parser.NewContext(parser.WithIDs(anchors{}))
	d.tree = markdown.Parser().Parse(text.NewReader(source), parser.WithContext(context))
	for node := d.tree.FirstChild(); node != nil; node = node.NextSibling() {
		h, ok := node.(*ast.Heading)
		if !ok {
			continue
		}
		id, _ := h.AttributeString("id")
		found := heading{Level: h.Level, ID: string(id.([]byte)), Text: plain(node, source)}
		if d.title == "" {
			d.title = found.Text
		}
		d.headings = append(d.headings, found)
	}
	return d
}

// page is the path of the HTML file of a document.
func page(name string) string {
	if path.Base(name) == home {
		return path.Join(path.Dir(name), "index.html")
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}

// anchors gives headings the anchors that GitHub gives them: TestDocuments checks the links of the documents against
// the same rule.
type anchors map[string]int

func (a anchors) Generate(line []byte, _ ast.NodeKind) []byte {
	text := strings.ToLower(target.ReplaceAllString(string(line), "]"))
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return r
		}
		return -1
	}, strings.TrimSpace(text))
	n := a[id]
	a[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

func (a anchors) Put([]byte) {}

// plain returns the text of a node, as a reader sees it.
func plain(node ast.Node, source []byte) string {
	var all strings.Builder
	err := ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock || n.Kind().String() == "TableCell" {
				all.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.HTMLBlock, *ast.RawHTML:
			return ast.WalkSkipChildren, nil
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			all.Write(n.Lines().Value(source))
		case *ast.Text:
			all.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				all.WriteByte(' ')
			}
		case *ast.String:
			all.Write(n.Value)
		case *ast.AutoLink:
			all.Write(n.Label(source))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		panic(err) // the function above returns none
	}
	return strings.Join(strings.Fields(all.String()), " ")
}
