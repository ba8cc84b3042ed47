package operators

import (
	"maps"
	"slices"
	"strings"
)

// namePattern stands for names of which one part is random: "web-*" of metadata.generateName, or what an operator makes
// at random itself.
type namePattern struct {
	prefix, suffix string
	length         int // of the random part
}

// minRandom is the length from which a part of a name may be random.
const minRandom = 4

func (p namePattern) String() string { return p.prefix + "*" + p.suffix }

func (p namePattern) matches(name string) bool {
	return len(name) == len(p.prefix)+p.length+len(p.suffix) && strings.HasPrefix(name, p.prefix) &&
		strings.HasSuffix(name, p.suffix) && isRandom(name[len(p.prefix):len(p.prefix)+p.length])
}

func isRandom(part string) bool {
	return len(part) >= minRandom && strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// patternOf returns the first pattern that a name matches.
func patternOf(patterns []namePattern, name string) (namePattern, bool) {
	for _, p := range patterns {
		if p.matches(name) {
			return p, true
		}
	}
	return namePattern{}, false
}

// anyName replaces the random part of a name by *.
func anyName(patterns []namePattern, name string) string {
	if p, known := patternOf(patterns, name); known {
		return p.String()
	}
	return name
}

// learnNames returns the patterns of names that the operator makes at random: each run without a fault has as many
// names of such a pattern as the others, and none of them is in all runs.
func learnNames(outcomes []*outcome) []namePattern {
	loose := make([]map[Place]bool, len(outcomes))
	count := map[Place]int{}
	for i, o := range outcomes {
		loose[i] = map[Place]bool{}
		for _, r := range o.requests {
			if r.Verb == "create" && r.Subresource == "" && r.Name != "" && !strings.Contains(r.Name, "*") && !r.refused {
				loose[i][Place{Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}] = true
			}
		}
		for place := range loose[i] {
			count[place]++
		}
	}
	for _, names := range loose {
		maps.DeleteFunc(names, func(place Place, _ bool) bool { return count[place] == len(outcomes) })
	}
	var patterns []namePattern
	for _, place := range slices.SortedFunc(maps.Keys(loose[0]), func(a, b Place) int {
		return strings.Compare(a.key(), b.key())
	}) {
		if _, known := patternOf(patterns, place.Name); known {
			continue
		}
		for _, p := range candidates(place.Name) {
			if isEverywhere(p, place, loose) {
				patterns = append(patterns, p)
				break
			}
		}
	}
	return patterns
}

// candidates are the patterns that a name may have, those with a random end first.
func candidates(name string) []namePattern {
	var all []namePattern
	parts := strings.Split(name, "-")
	for i := len(parts) - 1; i >= 0; i-- {
		if !isRandom(parts[i]) {
			continue
		}
		before, after := strings.Join(parts[:i], "-"), strings.Join(parts[i+1:], "-")
		if i > 0 {
			before += "-"
		}
		if i < len(parts)-1 {
			after = "-" + after
		}
		all = append(all, namePattern{prefix: before, suffix: after, length: len(parts[i])})
	}
	return all
}

// isEverywhere reports whether as many names of each run match, among the objects of a type in a namespace.
func isEverywhere(p namePattern, of Place, runs []map[Place]bool) bool {
	want := 0
	for i, names := range runs {
		n := 0
		for place := range names {
			if place.Resource == of.Resource && place.Namespace == of.Namespace && p.matches(place.Name) {
				n++
			}
		}
		if i == 0 {
			want = n
		}
		if n != want || n == 0 {
			return false
		}
	}
	return true
}
