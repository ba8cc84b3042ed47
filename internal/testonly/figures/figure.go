package figures

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Ours is the contender that the others are peers of.
const Ours = "keepwatch"

// Figure is one measure of one row: what each contender took in each round.
type Figure struct {
	Row     string `json:"row"`
	Measure string `json:"measure"`
	Unit    Unit   `json:"unit"`
	// Rounds has the value of each round that has one, by its number.
	Rounds map[string]map[int]float64 `json:"rounds"`
	// Failed has the rounds that have no value, since they failed.
	Failed map[string][]int `json:"failed,omitempty"`
	// Goal is the target in words, empty if there is none. Missed is set if our figure does not meet it.
	Goal   string `json:"goal,omitempty"`
	Missed bool   `json:"missed,omitempty"`
}

// Set sets a contender's value of a round, which has failed if it is no number.
func (f *Figure) Set(by string, round int, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		if f.Failed == nil {
			f.Failed = map[string][]int{}
		}
		f.Failed[by] = append(f.Failed[by], round)
		return
	}
	if f.Rounds == nil {
		f.Rounds = map[string]map[int]float64{}
	}
	if f.Rounds[by] == nil {
		f.Rounds[by] = map[int]float64{}
	}
	f.Rounds[by][round] = value
}

// Value returns the median of a contender's rounds, or NaN if it has none, or one has failed.
func (f *Figure) Value(by string) float64 {
	values := slices.Collect(maps.Values(f.Rounds[by]))
	switch {
	case len(values) == 0, len(f.Failed[by]) > 0:
		return math.NaN()
	case f.Unit == Losses:
		return slices.Max(values)
	}
	return Median(values)
}

// Ratio returns the median of the ratios to a peer, of the rounds that have both, or NaN if there is none, or one of
// the two has failed.
func (f *Figure) Ratio(to string) float64 {
	var ratios []float64
	for round, value := range f.Rounds[Ours] {
		if other, ok := f.Rounds[to][round]; ok {
			ratios = append(ratios, value/other)
		}
	}
	if len(ratios) == 0 || len(f.Failed[Ours])+len(f.Failed[to]) > 0 {
		return math.NaN()
	}
	return Median(ratios)
}

// Median returns the middle one of some values, the higher of two. There must be one.
func Median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
