package main

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"path"
	"strings"

	"github.com/yuin/goldmark/ast"
)

//go:embed assets
var assets embed.FS

var templates = template.Must(template.ParseFS(assets, "assets/*.html"))

// view is what the template of a page has.
type view struct {
	Title, Version, Commit string
	Root                   string // path to the version's folder
	Folder                 string // of the version
	Home, Current          string // pages, from the version's folder
	Source                 string // of the document, on GitHub
	Navigation             []entry
	Contents               []heading
	Body                   template.HTML
	Search                 bool // the page of the search
}

// entry is a line of the navigation.
type entry struct{ Page, Text string }

// files returns all files of the version's folder.
func (s *site) files() (map[string][]byte, error) {
	navigation, err := s.navigation()
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for name, d := range s.docs {
		body, err := s.render(d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		v := s.view(navigation, page(name), d.title)
		v.Body, v.Source = template.HTML(body), repository+"/blob/"+s.commit+"/"+name //nolint:gosec // our documents
		for _, h := range d.headings {
			if h.Level == 2 || h.Level == 3 {
				v.Contents = append(v.Contents, h)
			}
		}
		if err := execute(all, v); err != nil {
			return nil, err
		}
	}
	search := s.view(navigation, "search.html", "Search")
	search.Search = true
	if err := execute(all, search); err != nil {
		return nil, err
	}
	for _, name := range []string{"site.css", "site.js", "search.js"} {
		if all[name], err = assets.ReadFile("assets/" + name); err != nil {
			return nil, err
		}
	}
	for _, name := range s.names {
		if isPicture(name) && strings.HasPrefix(name, "docs/") {
			if all[name], err = s.content(name); err != nil {
				return nil, err
			}
		}
	}
	all["index.js"], err = s.index()
	return all, err
}

func (s *site) view(navigation []entry, at, title string) view {
	return view{
		Title: title, Version: s.version, Commit: s.commit, Root: strings.Repeat("../", strings.Count(at, "/")),
		Folder: folderOf(s.version), Home: page(home), Current: at, Navigation: navigation,
	}
}

func execute(files map[string][]byte, v view) error {
	var out bytes.Buffer
	err := templates.ExecuteTemplate(&out, "page.html", v)
	files[v.Current] = out.Bytes()
	return err
}

// navigation returns the documents that README.md lists in its section Documentation, in its order and words.
func (s *site) navigation() (all []entry, err error) {
	d, inside := s.docs[home], false
	for node := d.tree.FirstChild(); node != nil; node = node.NextSibling() {
		if h, ok := node.(*ast.Heading); ok {
			inside = h.Level == 2 && plain(h, d.source) == "Documentation"
		}
		if !inside {
			continue
		}
		err := ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			if link, ok := n.(*ast.Link); ok && entering {
				if name := path.Clean(string(link.Destination)); s.docs[name] != nil {
					all = append(all, entry{page(name), plain(link, d.source)})
				}
			}
			return ast.WalkContinue, nil
		})
		if err != nil {
			return nil, err
		}
	}
	if all == nil {
		return nil, fmt.Errorf("%s has no section Documentation with links", home)
	}
	return all, nil
}
