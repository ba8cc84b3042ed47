package operators

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// part is an object of a step, both counted from 1. The object of a step without objects is 0.
type part struct{ step, object int }

// partsOf returns all parts of a workload. The first step is the start, and has none.
func partsOf(steps []step) []part {
	var all []part
	for n := 1; n < len(steps); n++ {
		if len(steps[n].objects) == 0 {
			all = append(all, part{n, 0})
		}
		for i := range steps[n].objects {
			all = append(all, part{n, i + 1})
		}
	}
	return all
}

// only returns a workload that performs some parts. The numbers of the steps stay.
func only(steps []step, parts []part) []step {
	selected := slices.Clone(steps)
	for n := 1; n < len(steps); n++ {
		s := &selected[n]
		if s.objects = nil; !slices.ContainsFunc(parts, func(p part) bool { return p.step == n }) {
			s.action = omit
		}
		for i, o := range steps[n].objects {
			if slices.Contains(parts, part{n, i + 1}) {
				s.objects = append(s.objects, o)
			}
		}
	}
	return selected
}

// describeParts is the parts as Options.Steps reads them.
func describeParts(steps []step, parts []part) string {
	var words []string
	for n := 1; n < len(steps); n++ {
		var objects []string
		for _, p := range parts {
			if p.step == n {
				objects = append(objects, fmt.Sprintf("%d.%d", n, p.object))
			}
		}
		if len(objects) > 0 && len(objects) == max(len(steps[n].objects), 1) {
			objects = []string{strconv.Itoa(n)}
		}
		words = append(words, objects...)
	}
	return strings.Join(words, ",")
}

// parseParts reads what describeParts writes.
func parseParts(steps []step, text string) ([]part, error) {
	all := partsOf(steps)
	var parts []part
	for word := range strings.SplitSeq(text, ",") {
		number, object, single := strings.Cut(word, ".")
		before := len(parts)
		for _, p := range all {
			if strconv.Itoa(p.step) == number && (!single || strconv.Itoa(p.object) == object) {
				parts = append(parts, p)
			}
		}
		if len(parts) == before {
			return nil, fmt.Errorf("the workload has no part %q: give numbers of files, as in 2, or of objects, as in 2.1", word)
		}
	}
	return parts, nil
}
