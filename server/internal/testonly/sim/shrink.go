package sim

import "slices"

// Shrink searches for a short script that still fails. It removes decisions, half of them, a
// quarter, and so on down to single ones, until none can be removed (delta debugging: Zeller
// and Hildebrandt, 2002). It moves the others to earlier times, so that decisions which only
// led up to them can be removed, and sets arguments to zero where the script still fails.
func Shrink(s Script, fails func(Script) bool) Script {
	s = reduce(s, fails)
	for again := true; again; {
		var earlier, fewer bool
		s, earlier = advance(s, fails)
		s, fewer = removeAndAdvance(s, fails)
		if again = earlier || fewer; again {
			s = reduce(s, fails)
		}
	}
	for i := range s {
		zero := s.with(i, func(d *Decision) { d.Arg = 0 })
		if s[i].Arg != 0 && fails(zero) {
			s = zero
		}
	}
	return s
}

// reduce removes all decisions that can be removed.
func reduce(s Script, fails func(Script) bool) Script {
	for size := len(s) / 2; size > 0; {
		shorter, ok := removeRuns(s, size, fails)
		s = shorter
		if !ok || size > len(s) {
			size /= 2
		}
	}
	return s
}

// removeRuns removes runs of a size, and reports whether it has removed any.
func removeRuns(s Script, size int, fails func(Script) bool) (Script, bool) {
	found := false
	for i := 0; i < len(s); {
		without := slices.Delete(slices.Clone(s), i, min(i+size, len(s)))
		if fails(without) {
			s, found = without, true
		} else {
			i += size
		}
	}
	return s, found
}

// advance moves decisions to earlier times, and reports whether it has moved any.
func advance(s Script, fails func(Script) bool) (Script, bool) {
	found := false
	for i, d := range s {
		for _, n := range []int{0, d.N / 2, d.N - 1} {
			if n < 0 || n >= d.N {
				continue
			}
			earlier := s.with(i, func(d *Decision) { d.N = n })
			if !slices.ContainsFunc(s, func(o Decision) bool { return o.key() == earlier[i].key() }) && fails(earlier) {
				s, found = earlier, true
				break
			}
		}
	}
	return s, found
}

// removeAndAdvance removes one decision and moves another by one, whose number depended on
// the first. It reports whether it has done that.
func removeAndAdvance(s Script, fails func(Script) bool) (Script, bool) {
	found := false
	for i := len(s) - 1; i >= 0; i-- {
		for j := range s {
			if i == j || s[j].N == 0 {
				continue
			}
			less := slices.Delete(s.with(j, func(d *Decision) { d.N-- }), i, i+1)
			if fails(less) {
				s, found = less, true
				break
			}
		}
	}
	return s, found
}

// with returns the script with one decision changed.
func (s Script) with(i int, change func(*Decision)) Script {
	s = slices.Clone(s)
	change(&s[i])
	return s
}
