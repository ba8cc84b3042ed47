package field

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Owned returns the part of an object that its managers have written, without status: what no manager has written,
// the server has set. Names, apiVersion and kind are in it; the owner references, UIDs and managedFields are not. Of
// an object without managers it returns all but status and what servers set in metadata. Numbers are json.Number.
func Owned(object []byte) (map[string]any, error) {
	state, err := Decode(object)
	if err != nil {
		return nil, err
	}
	whole, ok := state.value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the object is a %T", state.value)
	}
	var sets []any
	for _, m := range state.owners {
		if m.Subresource != "status" {
			sets = append(sets, m.set)
		}
	}
	part := whole
	if len(state.owners) > 0 {
		if part, ok = keep(whole, sets).(map[string]any); !ok {
			part = map[string]any{}
		}
	}
	delete(part, "status")
	about, _ := whole["metadata"].(map[string]any)
	metadata, ok := part["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		part["metadata"] = metadata
	}
	for _, name := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp",
		"deletionGracePeriodSeconds",
		"ownerReferences", "generateName",
	} {
		delete(metadata, name)
	}
	for _, name := range []string{"name", "namespace"} {
		if v, ok := about[name]; ok {
			metadata[name] = v
		}
	}
	part["apiVersion"], part["kind"] = whole["apiVersion"], whole["kind"]
	return part, nil
}

// keep returns the part of a value that is in some sets of fields, nil if there is none.
func keep(value any, sets []any) any {
	below := false
	for _, set := range sets {
		fields, ok := set.(map[string]any)
		if ok && len(fields) == 0 {
			return value // all of it
		}
		below = below || ok
	}
	if !below {
		return nil
	}
	switch value := value.(type) {
	case map[string]any:
		part := map[string]any{}
		for name, v := range value {
			if kept := keep(v, next(sets, Element{Name: name})); kept != nil {
				part[name] = kept
			}
		}
		if len(part) > 0 || hasItself(sets) {
			return part
		}
	case []any:
		part := []any{}
		for i, v := range value {
			e := Element{Index: i, element: v}
			kept := keep(v, next(sets, e))
			if o, ok := v.(map[string]any); ok {
				kept = withKeys(kept, o, sets)
			}
			if kept != nil {
				part = append(part, kept)
			}
		}
		if len(part) > 0 || hasItself(sets) {
			return part
		}
	}
	return nil
}

// next returns the sets below an element of a path.
func next(sets []any, e Element) (all []any) {
	for _, set := range sets {
		if fields, ok := set.(map[string]any); ok {
			if v, ok := below(fields, e); ok {
				all = append(all, v)
			}
		}
	}
	return all
}

// hasItself reports whether a set has a map or a list itself, whatever is in it.
func hasItself(sets []any) bool {
	for _, set := range sets {
		if fields, ok := set.(map[string]any); ok {
			if _, ok := fields["."]; ok {
				return true
			}
		}
	}
	return false
}

// withKeys adds the members of its key to the part of an element of a list: without them, it is no element.
func withKeys(kept any, element map[string]any, sets []any) any {
	part, ok := kept.(map[string]any)
	if !ok {
		return kept
	}
	for _, set := range sets {
		fields, _ := set.(map[string]any)
		for name := range fields {
			var key map[string]json.RawMessage
			if text, ok := strings.CutPrefix(name, "k:"); !ok || json.Unmarshal([]byte(text), &key) != nil ||
				!matches(key, element) {
				continue
			}
			for member := range key {
				part[member] = element[member]
			}
		}
	}
	return part
}
