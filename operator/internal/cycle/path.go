package cycle

import (
	"fmt"
	"strings"
)

// Path leads to a field of an object, name by name. Elements of lists have no path.
type Path []string

// ParsePath parses a path like "spec.size". A dot that is part of a name has a backslash
// before it, as in kubectl's jsonpath: `metadata.labels.app\.kubernetes\.io/name`.
func ParsePath(s string) (Path, error) {
	var path Path
	var name strings.Builder
	for rest := strings.TrimPrefix(s, "."); ; {
		i := strings.IndexAny(rest, `.\`)
		if i < 0 {
			name.WriteString(rest)
			break
		}
		name.WriteString(rest[:i])
		if rest[i] == '\\' && i+1 < len(rest) {
			name.WriteByte(rest[i+1])
			rest = rest[i+2:]
			continue
		}
		path, rest = append(path, name.String()), rest[i+1:]
		name.Reset()
	}
	path = append(path, name.String())
	for _, n := range path {
		if n == "" {
			return nil, fmt.Errorf("field %q: want names with dots between them, like spec.size", s)
		}
	}
	return path, nil
}

var escape = strings.NewReplacer(`\`, `\\`, `.`, `\.`)

// String returns the path in ParsePath's syntax.
func (p Path) String() string {
	names := make([]string, len(p))
	for i, n := range p {
		names[i] = escape.Replace(n)
	}
	return strings.Join(names, ".")
}

// Meets reports whether one path equals or contains the other.
func (p Path) Meets(other Path) bool { return p.under(other) || other.under(p) }

// under reports whether p equals a field's path or leads into the field.
func (p Path) under(field Path) bool {
	if len(p) < len(field) {
		return false
	}
	for i := range field {
		if p[i] != field[i] {
			return false
		}
	}
	return true
}

// lookup returns the value at a path, and whether it exists. A null does not exist.
func lookup(object map[string]any, p Path) (any, bool) {
	var value any = object
	for _, name := range p {
		m, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		value = m[name]
	}
	return value, value != nil
}

// put sets the value at a path and creates missing maps on it. The caller must own the
// maps on the path.
func put(object map[string]any, p Path, value any) {
	for _, name := range p[:len(p)-1] {
		next, ok := object[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			object[name] = next
		}
		object = next
	}
	object[p[len(p)-1]] = value
}
