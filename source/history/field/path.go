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

// leavesOf returns the fields of an object, in the order of their names.
func leavesOf(object []byte) ([]leaf, error) {
	if object == nil {
		return nil, nil
	}
	value, err := parse(object)
	if err != nil {
		return nil, err
	}
	var all []leaf
	walk(nil, value, &all)
	return all, nil
}

func walk(path Path, value any, all *[]leaf) {
	below := func(e Element, value any) { walk(append(slices.Clone(path), e), value, all) }
	switch value := value.(type) {
	case map[string]any:
		if len(value) > 0 {
			for _, name := range sortedKeys(value) {
				below(Element{Name: name}, value[name])
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
				below(e, v)
			}
			return
		}
	}
	text, _ := json.Marshal(value) // it was JSON
	*all = append(*all, leaf{path, path.String(), text})
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
