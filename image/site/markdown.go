package main

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/util"
)

// markdown reads what GitHub reads. HTML in documents stays as it is: they are ours.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(
		html.WithUnsafe(),
		renderer.WithNodeRenderers(util.Prioritized(linkedHeadings{}, 100)),
	),
)

// target is the target of a link.
var target = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// linkedHeadings renders a heading with a link to itself.
type linkedHeadings struct{}

func (linkedHeadings) RegisterFuncs(register renderer.NodeRendererFuncRegisterer) {
	register.Register(ast.KindHeading,
		func(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
			level := node.(*ast.Heading).Level
			id, _ := node.AttributeString("id")
			if entering {
				fmt.Fprintf(w, `<h%d id="%s">`, level, util.EscapeHTML(id.([]byte)))
			} else {
				link := util.EscapeHTML(util.URLEscape(id.([]byte), false))
				fmt.Fprintf(w, ` <a class="anchor" href="#%s" aria-label="Link to this section">#</a></h%d>`+"\n", link, level)
			}
			return ast.WalkContinue, nil
		})
}

// render returns the HTML of a document, whose links it changes to those of the site.
func (s *site) render(d *document) ([]byte, error) {
	err := ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, ok := n.(*ast.Link); ok && entering {
			link.Destination = []byte(s.link(d.name, string(link.Destination)))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = markdown.Renderer().Render(&out, d.source, d.tree)
	return out.Bytes(), err
}

// link returns the link of the site for one of a document: the page of another document, a picture, or GitHub's page of
// any other file or folder. Links to elsewhere stay.
func (s *site) link(from, link string) string {
	file, anchor, anchored := strings.Cut(link, "#")
	if file == "" || strings.Contains(link, ":") {
		return link
	}
	if anchored {
		anchor = "#" + anchor
	}
	name := path.Join(path.Dir(from), file)
	switch {
	case s.docs[name] != nil:
		return relative(from, page(name)) + anchor
	case isPicture(name):
		return link
	case s.folders[name]:
		return repository + "/tree/" + s.commit + "/" + name + anchor
	}
	return repository + "/blob/" + s.commit + "/" + name + anchor
}

// isPicture returns whether a file is a picture, which the site copies.
func isPicture(name string) bool { return path.Ext(name) == ".svg" || path.Ext(name) == ".png" }

// relative returns the path to a file of the site from the page of a document.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")) + to
}
