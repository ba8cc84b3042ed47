package sim

import "slices"

// Shrink looks for a short script that still fails, by taking decisions out: half
// of them, a quarter, and so on down to one by one, until none can be spared
// (delta debugging: Zeller and Hildebrandt, 2002). Then it makes arguments zero
// where that changes nothing.
func Shrink(s Script, fails func(Script) bool) Script {
	for size := len(s) / 2; size > 0; {
		shorter, ok := spare(s, size, fails)
		s = shorter
		if !ok || size > len(s) {
			size /= 2
		}
	}
	for i := range s {
		plain := slices.Clone(s)
		plain[i].Arg = 0
		if s[i].Arg != 0 && fails(plain) {
			s = plain
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
