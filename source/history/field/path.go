package field

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Path names a field of an object: spec.template.spec.containers[name=web].image.
type Path []Element

// Element is a part of a path: the name of a member, or an element of a list.
type Element struct {
	Name  string
	Index int // in the list, if Name is empty
	// Key is the member by which the elements of the list are told apart, empty if Index does; Value is that of the
	// element.
	Key, Value string
	element    any // of a list
}

func (e Element) text() string {
	switch {
	case e.Name == "" && e.Key != "":
		return fmt.Sprintf("[%s=%s]", e.Key, e.Value)
	case e.Name == "":
		return fmt.Sprintf("[%d]", e.Index)
	case strings.ContainsAny(e.Name, ".[]'"):
		return fmt.Sprintf("['%s']", strings.ReplaceAll(e.Name, "'", `\'`))
	}
	return "." + e.Name
}

// String returns the path as people write it.
func (p Path) String() string {
	var s strings.Builder
	for _, e := range p {
		s.WriteString(e.text())
	}
	return strings.TrimPrefix(s.String(), ".")
}

// In reports whether the path is that of a field, or of one below it, which is given by the names of members.
func (p Path) In(names ...string) bool {
	if len(p) < len(names) {
		return false
	}
	for i, name := range names {
		if p[i].Name != name {
			return false
		}
	}
	return true
}

// leaf is a field without others below it: a scalar, an empty object or list, or a list of scalars.
type leaf struct {
	path Path
	text string // of path
	// value is the field's as JSON; its members are sorted.
	value json.RawMessage
}

// parse parses an object, numbers as they are written.
func parse(object []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("the object is followed by other text")
	}
	return value, nil
}

// walk adds the fields of a value at a path, apart from members that another value has, too, with all below them: to
// make paths of what is compared takes longer than to read it.
func walk(path Path, value, without any, all *[]leaf) {
	below := func(e Element, value, without any) { walk(append(slices.Clone(path), e), value, without, all) }
	switch value := value.(type) {
	case map[string]any:
		if len(value) > 0 {
			others, _ := without.(map[string]any)
			for _, name := range sortedKeys(value) {
				if other, ok := others[name]; ok && equal(other, value[name]) || bookkeeping(path, name) {
					continue
				}
				below(Element{Name: name}, value[name], others[name])
			}
			return
		}
	case []any:
		if hasObjects(value) {
			key := keyOf(value)
			for i, v := range value {
				e := Element{Index: i, Key: key, element: v}
				if key != "" {
					e.Value = fmt.Sprint(v.(map[string]any)[key])
				}
				below(e, v, nil)
			}
			return
		}
	}
	text, _ := json.Marshal(value) // it was JSON
	*all = append(*all, leaf{path, path.String(), text})
}

// bookkeeping reports whether a member changes with every write.
func bookkeeping(in Path, name string) bool {
	return len(in) == 1 && in[0].Name == "metadata" && (name == "managedFields" || name == "resourceVersion")
}

// equal reports whether two values that were parsed are the same.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			if other, ok := b[name]; !ok || !equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func hasObjects(list []any) bool {
	return slices.ContainsFunc(list, func(v any) bool {
		_, isObject := v.(map[string]any)
		return isObject
	})
}

// keys are the members by which the API's lists tell their elements apart.
var keys = []string{"name", "type", "containerPort", "port", "uid", "ip", "topologyKey", "mountPath", "devicePath",
	"key", "hostname"}

// keyOf returns the member that is in all elements of a list with different scalar values, empty if there is none.
func keyOf(list []any) string {
	for _, key := range keys {
		seen := map[string]bool{}
		for _, v := range list {
			o, _ := v.(map[string]any)
			switch value := o[key].(type) {
			case string, json.Number:
				seen[fmt.Sprint(value)] = true
			}
		}
		if len(seen) == len(list) {
			return key
		}
	}
	return ""
}
