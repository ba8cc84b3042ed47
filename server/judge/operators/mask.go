package operators

import "slices"

// mask is the fields in which the runs of the reference differ, by the keys of their objects. A path is true if its
// values are equal to each other's in the same way in each run, as a password that is stored twice.
type mask map[string]map[string]bool

// masked is the value of a field that may be any.
const masked = "any value"

// minToken is the length from which two equal values are no coincidence.
const minToken = 8

// newMask compares the states of the reference after one step.
func newMask(states []state) mask {
	m := mask{}
	first := states[0]
	for _, other := range states[1:] {
		for _, d := range differences(first, other) {
			if d.path == "" {
				continue // not a matter of values
			}
			if m[classOf(d.key)] == nil {
				m[classOf(d.key)] = map[string]bool{}
			}
			m[classOf(d.key)][d.path] = true
		}
	}
	tokens := m.on(first)
	for _, other := range states[1:] {
		for _, d := range differences(tokens, m.on(other)) {
			if d.path != "" {
				m[classOf(d.key)][d.path] = false
			}
		}
	}
	return m
}

// on returns a state in which values that may differ are replaced: equal ones by equal words, which name where the
// first one is.
func (m mask) on(s state) state {
	if len(m) == 0 {
		return s
	}
	words := map[string]string{}
	result := state{}
	for _, key := range sortedKeys(s) {
		paths := m[classOf(key)]
		if len(paths) == 0 {
			result[key] = s[key]
			continue
		}
		result[key] = fields{}
		for _, path := range sortedKeys(s[key]) {
			value := s[key][path]
			if related, ok := paths[path]; ok {
				value = wordFor(value, related, words, key+" "+path)
			}
			result[key][path] = value
		}
		for path := range paths {
			if _, ok := result[key][path]; !ok && !paths[path] {
				result[key][path] = masked
			}
		}
	}
	return result
}

func wordFor(value string, related bool, words map[string]string, at string) string {
	if !related || len(value) < minToken {
		return masked
	}
	if words[value] == "" {
		words[value] = "the value of " + at
	}
	return words[value]
}

func sortedKeys[M ~map[string]V, V any](m M) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
