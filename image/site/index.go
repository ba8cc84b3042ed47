package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// section is a part of a document that the search finds: from a heading to the next one.
type section struct {
	Page    string `json:"page"`
	Title   string `json:"title"` // of the document
	ID      string `json:"id"`
	Heading string `json:"heading"`
	Text    string `json:"text"`
}

// sections divides a document at its headings.
func (d *document) sections() (all []section) {
	at := section{Page: page(d.name), Title: d.title}
	var text strings.Builder
	end := func() {
		if at.Text = strings.Join(strings.Fields(text.String()), " "); at.Text != "" || at.Heading != "" {
			all = append(all, at)
		}
		text.Reset()
	}
	for node := d.tree.FirstChild(); node != nil; node = node.NextSibling() {
		h, ok := node.(*ast.Heading)
		if !ok {
			text.WriteString(plain(node, d.source) + " ")
			continue
		}
		end()
		id, _ := h.AttributeString("id")
		at.ID, at.Heading = string(id.([]byte)), plain(h, d.source)
	}
	end()
	return all
}

// index returns the script with all sections, one a line.
func (s *site) index() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("index([\n")
	for _, name := range slices.Sorted(maps.Keys(s.docs)) {
		for _, part := range s.docs[name].sections() {
			line, err := json.Marshal(part)
			if err != nil {
				return nil, err
			}
			out.Write(append(line, ",\n"...))
		}
	}
	out.WriteString("]);\n")
	return out.Bytes(), nil
}
