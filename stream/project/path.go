package project

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// path is a sequence of steps from an object to its parts.
type path []step

// step is one step of a path: a member of an object, an element of a list, or all of either.
type step struct {
	name  string
	index int // -1 unless it is an element
	all   bool
}

// parsePath parses the part of JSONPath that names fields: spec.nodeName,
// {.spec.containers[*].image}, metadata.labels['app.kubernetes.io/name'], status.conditions[0],
// data.*.
func parsePath(text string) (path, error) {
	rest := text
	if inner, ok := strings.CutPrefix(rest, "{"); ok {
		if rest, ok = strings.CutSuffix(inner, "}"); !ok {
			return nil, fmt.Errorf("path %q: } is missing", text)
		}
	}
	rest = strings.TrimPrefix(rest, "$")
	if rest != "" && rest[0] != '.' && rest[0] != '[' {
		rest = "." + rest
	}
	var p path
	for rest != "" {
		s, after, err := parseStep(rest)
		if err != nil {
			return nil, fmt.Errorf("path %q: at %q: %w", text, rest, err)
		}
		p, rest = append(p, s), after
	}
	if len(p) == 0 {
		return nil, fmt.Errorf("path %q is empty: give a field such as spec.nodeName", text)
	}
	return p, nil
}

// parseStep parses the first step of a text that begins with a dot or a bracket.
func parseStep(text string) (s step, rest string, err error) {
	if text[0] == '[' {
		return parseBracket(text)
	}
	end := strings.IndexAny(text[1:], ".[")
	if end < 0 {
		end = len(text) - 1
	}
	name, rest := text[1:1+end], text[1+end:]
	switch {
	case name == "*":
		return step{index: -1, all: true}, rest, nil
	case name == "":
		return step{}, "", errors.New("a name is missing")
	case strings.ContainsAny(name, " {}()@?\"'*]"):
		return step{}, "", errors.New("only names, ['names'], [numbers] and [*] are supported")
	case strings.ContainsAny(name, `\,`):
		return step{}, "", errors.New("a path names one field, and one with a dot is written as ['tls.key']")
	}
	return step{name: name, index: -1}, rest, nil
}

func parseBracket(text string) (s step, rest string, err error) {
	if len(text) > 1 && (text[1] == '\'' || text[1] == '"') {
		name, rest, ok := strings.Cut(text[2:], string(text[1])+"]")
		if !ok {
			return step{}, "", errors.New("the name has no end")
		}
		if strings.ContainsAny(name, `\'"`) { // such as 'tls\.key', and 'a','b'
			return step{}, "", errors.New("a path names one field, as in ['tls.key']")
		}
		return step{name: name, index: -1}, rest, nil
	}
	inner, rest, ok := strings.Cut(text[1:], "]")
	if !ok {
		return step{}, "", errors.New("] is missing")
	}
	if inner == "*" {
		return step{index: -1, all: true}, rest, nil
	}
	n, err := strconv.Atoi(inner)
	if err != nil || n < 0 {
		return step{}, "", errors.New("only ['names'], [numbers] and [*] are supported")
	}
	return step{index: n}, rest, nil
}

// matches reports whether a step leads to a member of an object.
func (s step) matches(name string) bool { return s.all || s.index < 0 && s.name == name }

// matchesIndex reports whether a step leads to an element of a list.
func (s step) matchesIndex(i int) bool { return s.all || s.index == i }
