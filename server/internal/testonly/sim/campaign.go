package sim

import "cmp"

// Campaign is a sequence of schedules determined by a seed.
type Campaign struct {
	Seed   uint64
	Mutant Mutant
}

// Style is how a schedule's faults are chosen.
type Style string

const (
	Uniform Style = "uniform" // any fault, anywhere
	Swarm   Style = "swarm"   // a random half of the faults, more often
	Aimed   Style = "aimed"   // few faults, each at a mark
	Swept   Style = "swept"   // one fault, for each fault and mark
)

// Play plays the campaign's n-th schedule.
func (c Campaign) Play(n int, play func(*Director, Mutant) Outcome) Outcome {
	seed := c.Seed + uint64(n)
	var o Outcome
	if len(c.Mutant.Near) > 0 {
		o = play(Draw(Mix{Seed: seed, Rate: cmp.Or(c.Mutant.Rate, 25), Only: c.Mutant.Near}), c.Mutant)
		o.Seed, o.Style = seed, Swarm
		return o
	}
	switch style := [...]Style{Uniform, Swarm, Uniform, Swarm, Aimed}[seed%5]; style {
	case Aimed:
		o = Aim(seed, func(d *Director) Outcome { return play(d, c.Mutant) })
		o.Style = style
	case Swarm:
		o = play(Draw(Mix{Seed: seed, Rate: 8 + int(seed/5%5)*8, Swarm: true}), c.Mutant)
		o.Style = style
	default:
		o = play(Draw(Mix{Seed: seed, Rate: 12}), c.Mutant)
		o.Style = style
	}
	o.Seed = seed
	return o
}
