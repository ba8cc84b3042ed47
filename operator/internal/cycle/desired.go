package cycle

import (
	"fmt"
	"maps"
	"strings"
)

const appliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// desired returns the part of an object that counts as a change: kopf calls it the essence.
// It shares its values with the object.
func (s Spec) desired(object map[string]any) map[string]any {
	desired := map[string]any{}
	for name, value := range object {
		switch name {
		case "apiVersion", "kind", "metadata", "status":
		default:
			desired[name] = value
		}
	}
	if labels, ok := lookup(object, Path{"metadata", "labels"}); ok {
		if m, ok := labels.(map[string]any); ok && len(m) > 0 {
			put(desired, Path{"metadata", "labels"}, m)
		}
	}
	if annotations := s.annotations(object); len(annotations) > 0 {
		put(desired, Path{"metadata", "annotations"}, annotations)
	}
	for _, field := range s.extra {
		if _, there := lookup(desired, field); there {
			continue
		}
		if value, ok := lookup(object, field); ok {
			put(desired, field, value)
		}
	}
	return without(desired, s.Status)
}

// without returns a map without the field at a path. It copies the maps on that path.
func without(m map[string]any, p Path) map[string]any {
	if _, there := lookup(m, p); len(p) == 0 || !there {
		return m
	}
	m = maps.Clone(m)
	if len(p) == 1 {
		delete(m, p[0])
		return m
	}
	m[p[0]] = without(m[p[0]].(map[string]any), p[1:])
	return m
}

// annotations returns the annotations that are neither kubectl's nor an operator's.
func (s Spec) annotations(object map[string]any) map[string]any {
	value, _ := lookup(object, Path{"metadata", "annotations"})
	all, _ := value.(map[string]any)
	operators := s.Keys.operatorPrefixes(all)
	counted := make(map[string]any, len(all))
	for key, value := range all {
		prefix, _, prefixed := strings.Cut(key, "/")
		if key == appliedAnnotation || prefixed && operators[prefix] {
			continue
		}
		counted[key] = value
	}
	return counted
}

// stored returns the desired state that is stored under a name, nil if there is none.
func (s Spec) stored(object map[string]any, name string) (map[string]any, error) {
	text, ok := s.progress(object, name)
	if !ok {
		return nil, nil
	}
	var desired map[string]any
	if err := decode(text, &desired); err != nil {
		return nil, s.unreadable(s.slot(name, object), err)
	}
	if desired == nil {
		return nil, s.unreadable(s.slot(name, object), fmt.Errorf("it is no object"))
	}
	return desired, nil
}

func annotation(object map[string]any, key string) (string, bool) {
	value, _ := lookup(object, Path{"metadata", "annotations", key})
	text, ok := value.(string)
	return text, ok
}

// Changed reports whether two states of an object differ in their desired states.
func (s Spec) Changed(old, new map[string]any) bool {
	return len(Compare(s.desired(old), s.desired(new))) > 0
}
