package sim

import "slices"

// Shrink looks for a short script that still fails. It takes decisions out, half
// of them, a quarter, and so on down to one by one, until none can be spared
// (delta debugging: Zeller and Hildebrandt, 2002); lets those that are left happen
// earlier, so that what only led up to them can go; and makes arguments zero where
// that changes nothing.
func Shrink(s Script, fails func(Script) bool) Script {
	s = reduce(s, fails)
	for again := true; again; {
		var earlier, fewer bool
		s, earlier = advance(s, fails)
		s, fewer = trade(s, fails)
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

// reduce takes out all that can be spared.
func reduce(s Script, fails func(Script) bool) Script {
	for size := len(s) / 2; size > 0; {
		shorter, ok := spare(s, size, fails)
		s = shorter
		if !ok || size > len(s) {
			size /= 2
		}
	}
	return s
}

// spare takes out whatever runs of a size can be, and reports whether any could.
func spare(s Script, size int, fails func(Script) bool) (Script, bool) {
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

// advance lets decisions happen earlier, and reports whether any could.
func advance(s Script, fails func(Script) bool) (Script, bool) {
	found := false
	for i, d := range s {
		for _, n := range []int{0, d.N / 2, d.N - 1} {
			if n < 0 || n >= d.N {
				continue
			}
			earlier := s.with(i, func(d *Decision) { d.N = n })
			if !slices.ContainsFunc(s, func(o Decision) bool { return o.place() == earlier[i].place() }) && fails(earlier) {
				s, found = earlier, true
				break
			}
		}
	}
	return s, found
}

// trade takes one decision out and lets another happen one time earlier, where
// the one was what the other's count rested on. It reports whether that helped.
func trade(s Script, fails func(Script) bool) (Script, bool) {
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

// with is the script with one decision changed.
func (s Script) with(i int, change func(*Decision)) Script {
	s = slices.Clone(s)
	change(&s[i])
	return s
}
