package broker

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Template makes names of topics or subjects: "k8s.{resource}.{namespace}".
type Template struct {
	text  string
	parts []string // text and placeholders in turn
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// ParseTemplate parses a template whose placeholders are among the known ones. Outside of them, it has no braces.
func ParseTemplate(text string, known ...string) (Template, error) {
	t := Template{text: text}
	last := 0
	for _, at := range placeholder.FindAllStringIndex(text, -1) {
		name := text[at[0]+1 : at[1]-1]
		if !slices.Contains(known, name) {
			return t, fmt.Errorf("%q: the placeholder {%s} is not known: they are {%s}", text, name, strings.Join(known, "}, {"))
		}
		t.parts = append(t.parts, text[last:at[0]], name)
		last = at[1]
	}
	t.parts = append(t.parts, text[last:])
	for i := 0; i < len(t.parts); i += 2 {
		if strings.ContainsAny(t.parts[i], "{}") {
			return t, fmt.Errorf("%q: a brace has no partner", text)
		}
	}
	return t, nil
}

// Expand replaces each placeholder by its value.
func (t Template) Expand(value func(placeholder string) string) string {
	var b strings.Builder
	for i, part := range t.parts {
		if i%2 == 1 {
			part = value(part)
		}
		b.WriteString(part)
	}
	return b.String()
}

func (t Template) String() string { return t.text }
