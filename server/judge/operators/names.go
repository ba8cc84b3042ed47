package operators

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namePattern stands for names of which some parts are random: "web-*" of metadata.generateName, or what somebody makes
// at random himself. It says nothing about names of another type, or in another namespace: these may be fixed.
type namePattern struct {
	of   Place // a resource and a namespace, and the name with * for each random part
	name *regexp.Regexp
}

// minRandom is the length from which a part of a name may be random.
const minRandom = 4

// generated is the pattern of the names that the server generates for a write.
func generated(at Place, prefix string) namePattern {
	const suffix = 5 // is the length of what it appends
	name := fmt.Sprintf("^%s[a-z0-9]{%d}$", regexp.QuoteMeta(prefix), suffix)
	return newNamePattern(at, prefix+"*", name)
}

func newNamePattern(at Place, text, expression string) namePattern {
	of := Place{Resource: at.Resource, Namespace: at.Namespace, Name: text}
	return namePattern{of: of, name: regexp.MustCompile(expression)}
}

func (p namePattern) String() string { return p.of.key() }

// isSame reports whether two patterns match the same names.
func (p namePattern) isSame(as namePattern) bool {
	return p.of == as.of && p.name.String() == as.name.String()
}

// matches reports whether the pattern stands for the object of a place.
func (p namePattern) matches(place Place) bool {
	return place.Resource == p.of.Resource && place.Namespace == p.of.Namespace && p.name.MatchString(place.Name)
}

func isRandom(part string) bool {
	return len(part) >= minRandom && strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// isPattern reports whether a name stands for several.
func isPattern(name string) bool { return strings.Contains(name, "*") }

// anyName returns the name of a place with * for its random parts, and for UIDs.
func anyName(patterns []namePattern, place Place) string {
	place.Name = uid.ReplaceAllString(place.Name, "*")
	for _, p := range patterns {
		if p.matches(place) {
			return p.of.Name
		}
	}
	return place.Name
}

// nameOf returns the name of an object of a resource as the reference has it.
func nameOf(patterns []namePattern, resource string, o metav1.Object) string {
	name := o.GetName()
	if prefix := o.GetGenerateName(); prefix != "" && strings.HasPrefix(name, prefix) {
		name = prefix + "*"
	}
	return anyName(patterns, Place{Resource: resource, Namespace: o.GetNamespace(), Name: name})
}

// learnNames returns the patterns of names that are made at random: each run without a fault has as many names of such
// a pattern as the others, and none of them is in all runs. No pattern stands for a name that all runs have.
func learnNames(outcomes []*outcome) []namePattern {
	loose := make([]map[Place]bool, len(outcomes))
	count := map[Place]int{}
	for i, o := range outcomes {
		loose[i] = o.names()
		for place := range loose[i] {
			count[place]++
		}
	}
	fixed := map[Place]bool{}
	for _, names := range loose {
		maps.DeleteFunc(names, func(place Place, _ bool) bool {
			fixed[place] = count[place] == len(outcomes)
			return fixed[place]
		})
	}
	var patterns []namePattern
	for _, place := range slices.SortedFunc(maps.Keys(loose[0]), func(a, b Place) int {
		return strings.Compare(a.key(), b.key())
	}) {
		if anyName(patterns, place) != place.Name {
			continue
		}
		for _, p := range candidates(place) {
			if isEverywhere(p, loose) && p.among(fixed) == 0 {
				patterns = append(patterns, p)
				break
			}
		}
	}
	return patterns
}

// names returns those of the objects that the operator has created in a run, or that were there after a step.
func (o *outcome) names() map[Place]bool {
	all := map[Place]bool{}
	for _, r := range o.requests {
		if r.Verb == "create" && r.Subresource == "" && r.Name != "" && !r.refused {
			all[Place{Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}] = true
		}
	}
	for _, s := range o.states {
		for key := range s {
			resource, object, _ := strings.Cut(classOf(key), " ")
			namespace, name, namespaced := strings.Cut(object, "/")
			if !namespaced {
				namespace, name = "", object
			}
			all[Place{Resource: resource, Namespace: namespace, Name: name}] = true
		}
	}
	return all
}

// maxRandom is the number of parts of a name that may be random, as in those of a Deployment's pods.
const maxRandom = 2

// candidates are the patterns that the name of a place may have: those with few random parts first, then those with a
// random end, then those whose parts have any length: a hash may be shorter in another run.
func candidates(place Place) []namePattern {
	parts := strings.Split(place.Name, "-")
	var all []namePattern
	var choose func(from, left int, random []int)
	choose = func(from, left int, random []int) {
		if left == 0 {
			all = append(all, patternOf(place, random, false), patternOf(place, random, true))
			return
		}
		for i := from; i >= 0; i-- {
			if isRandom(parts[i]) {
				choose(i-1, left-1, append(slices.Clone(random), i))
			}
		}
	}
	for n := 1; n <= max(1, min(maxRandom, len(parts)-1)); n++ {
		choose(len(parts)-1, n, nil)
	}
	return all
}

// patternOf returns the pattern of a name some parts of which are random, with their lengths or with any.
func patternOf(place Place, random []int, exact bool) namePattern {
	parts := strings.Split(place.Name, "-")
	words, expressions := slices.Clone(parts), make([]string, len(parts))
	for i, part := range parts {
		expressions[i] = regexp.QuoteMeta(part)
	}
	for _, i := range random {
		words[i], expressions[i] = "*", fmt.Sprintf("[a-z0-9]{%d,}", minRandom)
		if exact {
			expressions[i] = fmt.Sprintf("[a-z0-9]{%d}", len(parts[i]))
		}
	}
	return newNamePattern(place, strings.Join(words, "-"), "^"+strings.Join(expressions, "-")+"$")
}

// isEverywhere reports whether as many names of each run match.
func isEverywhere(p namePattern, runs []map[Place]bool) bool {
	want := p.among(runs[0])
	other := func(names map[Place]bool) bool { return p.among(names) != want }
	return want > 0 && !slices.ContainsFunc(runs[1:], other)
}

// among returns how many names match.
func (p namePattern) among(names map[Place]bool) (n int) {
	for place, in := range names {
		if in && p.matches(place) {
			n++
		}
	}
	return n
}
