package project

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Options name the parts of objects.
type Options struct {
	// Fields are the paths of the fields that are stored; empty means all. apiVersion, kind and
	// metadata's name, namespace, uid and resourceVersion are always stored.
	Fields []string
	// Redact are the paths of values that are replaced by "REDACTED".
	Redact []string
	// Metadata is true for objects of which only the metadata is requested. Then Fields are of the metadata.
	Metadata bool
	// Secret is true for objects whose values are confidential: they have no annotations.
	Secret bool
}

// Redacted replaces a value that is redacted.
const Redacted = "REDACTED"

// identity are the fields that are always stored.
var identity = []string{
	"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion",
}

// Projection removes and redacts parts of objects. It removes annotations that repeat what it removes: copies of the
// object, which tools that apply manifests keep there. It is immutable.
type Projection struct {
	fields, redact []path
	secret         bool
}

// New returns a projection, or an error that names the path that cannot be parsed, or leads to what is not requested.
// It returns nil if objects are stored as they are: without fields, redacted values and a restriction to metadata.
func New(o Options) (*Projection, error) {
	if len(o.Fields) == 0 && len(o.Redact) == 0 && !o.Metadata {
		return nil, nil
	}
	p := &Projection{secret: o.Secret}
	for _, text := range o.Fields {
		if parsed, err := parsePath(text); err == nil && o.Metadata && !parsed[0].matches("metadata") {
			return nil, fmt.Errorf("path %q: only metadata is requested, and it is not below metadata", text)
		}
	}
	if len(o.Fields) > 0 {
		o.Fields = append(o.Fields[:len(o.Fields):len(o.Fields)], identity...)
	}
	for _, list := range []struct {
		texts []string
		paths *[]path
	}{{o.Fields, &p.fields}, {o.Redact, &p.redact}} {
		for _, text := range list.texts {
			parsed, err := parsePath(text)
			if err != nil {
				return nil, err
			}
			*list.paths = append(*list.paths, parsed)
		}
	}
	return p, nil
}

// Apply returns the projection of an object's JSON. Numbers keep their text. It does not
// change its argument, and is safe for concurrent use.
func (p *Projection) Apply(object []byte) ([]byte, error) {
	in := json.NewDecoder(bytes.NewReader(object))
	in.UseNumber()
	var value any
	if err := in.Decode(&value); err != nil {
		return nil, fmt.Errorf("the object cannot be read as JSON: %w", err)
	}
	removeAnnotations(value, p.secret)
	value = redact(value, p.redact)
	if len(p.fields) > 0 {
		if value = keep(value, p.fields); value == nil {
			value = map[string]any{}
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// keep returns the parts of a value to which paths lead, or nil if there are none. A list
// keeps the elements that have any, in order.
func keep(value any, paths []path) any {
	for _, p := range paths {
		if len(p) == 0 {
			return value
		}
	}
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, member := range value {
			if part := keep(member, after(paths, func(s step) bool { return s.matches(name) })); part != nil {
				kept[name] = part
			}
		}
		if len(kept) > 0 {
			return kept
		}
	case []any:
		var kept []any
		for i, element := range value {
			if part := keep(element, after(paths, func(s step) bool { return s.matchesIndex(i) })); part != nil {
				kept = append(kept, part)
			}
		}
		if len(kept) > 0 {
			return kept
		}
	}
	return nil
}

// redact replaces the parts of a value to which paths lead.
func redact(value any, paths []path) any {
	for _, p := range paths {
		if len(p) == 0 {
			return Redacted
		}
	}
	if len(paths) == 0 {
		return value
	}
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			value[name] = redact(member, after(paths, func(s step) bool { return s.matches(name) }))
		}
	case []any:
		for i, element := range value {
			value[i] = redact(element, after(paths, func(s step) bool { return s.matchesIndex(i) }))
		}
	}
	return value
}

// after returns what follows the first steps that match.
func after(paths []path, matches func(step) bool) (rest []path) {
	for _, p := range paths {
		if matches(p[0]) {
			rest = append(rest, p[1:])
		}
	}
	return rest
}
